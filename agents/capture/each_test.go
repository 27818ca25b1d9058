package capture

import (
	"os"
	"slices"
	"strings"
)

// engineWay is one way to take packets, which a test forces.
type engineWay struct {
	name string
	ways []way
}

func (w engineWay) engine() Engine { return &sessions{ways: w.ways, create: createFile} }

// all ways to take packets.
var all = []engineWay{{ByAFPacket, []way{bySockets}}, {ByTCX, []way{byTCX}}, {ByClsact, []way{byClsact}}}

// enginesVar, in the environment, names the ways that this kernel has, where it has not all: "afpacket,clsact".
const enginesVar = "SONDE_TEST_ENGINES"

// each is all of them, or those of the environment.
var each = eachOf(os.Getenv(enginesVar))

func eachOf(names string) []engineWay {
	if names == "" {
		return all
	}
	var some []engineWay
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(w engineWay) bool { return w.name == name })
		if i < 0 {
			panic(enginesVar + ": there is no engine " + name)
		}
		some = append(some, all[i])
	}
	return some
}
