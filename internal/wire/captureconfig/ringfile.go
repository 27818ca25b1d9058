package captureconfig

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	packetSuffix = ".pcapng"
	// ringDigits is the least number of digits in the name of a ring's file. A JobID has four characters, so the name of a
	// single file never ends like this.
	ringDigits = 10
)

// RingFile returns the name of a file of a ring, like POD-JOBID-0000000001.pcapng. The first number is 1.
func RingFile(base string, number uint64) string {
	return fmt.Sprintf("%s-%0*d%s", base, ringDigits, number, packetSuffix)
}

// ParseRingFile returns the parts of the name of a ring's file. ok is false for other names.
func ParseRingFile(name string) (base string, number uint64, ok bool) {
	rest, ok := strings.CutSuffix(name, packetSuffix)
	at := strings.LastIndexByte(rest, '-')
	if !ok || at <= 0 {
		return "", 0, false
	}
	number, err := strconv.ParseUint(rest[at+1:], 10, 64)
	if base = rest[:at]; err != nil || number == 0 || RingFile(base, number) != name {
		return "", 0, false
	}
	return base, number, true
}
