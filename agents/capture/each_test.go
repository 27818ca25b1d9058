package capture

import (
	"os"
	"slices"
	"strings"

	"github.com/sonde-operator/sonde/agents/capture/record"
)

// engine returns an engine with only this backend.
func (c candidate) engine() Engine {
	return &engine{candidates: []candidate{c}, create: record.CreateFile}
}

// all backends.
var all = []candidate{afPacket, tcx, clsact}

// enginesVar, in the environment, names the backends that this kernel has, if it does not have all: "afpacket,clsact".
const enginesVar = "SONDE_TEST_ENGINES"

// each returns all backends, or the ones that the environment names.
var each = eachOf(os.Getenv(enginesVar))

func eachOf(names string) []candidate {
	if names == "" {
		return all
	}
	var some []candidate
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(c candidate) bool { return c.name == name })
		if i < 0 {
			panic(enginesVar + ": there is no backend " + name)
		}
		some = append(some, all[i])
	}
	return some
}

// preferred returns the preferred backend that names processes.
func preferred() candidate {
	if slices.ContainsFunc(each, func(c candidate) bool { return c.name == tcx.name }) {
		return tcx
	}
	return clsact
}
