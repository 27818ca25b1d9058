package tracefmt

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// flapLine is the regular expression of FLAP's own readers.
var flapLine = regexp.MustCompile(`^(\d+)\s+\{pid=(\d+)\s+tid=(\d+)\s+proc=([^\}]+)\}\{(EN|EX)\s+([^\}]+)\}(?:\{([^\}]*)\})?$`)

// FlapLine is one line of FLAP.
type FlapLine struct {
	// Boot is the node's uptime.
	Boot     time.Duration
	PID, TID uint32
	Proc     string
	// Enter is set at the beginning of a call, and not at its end.
	Enter bool
	Call  string
	// Args by FLAP's names, as texts.
	Args map[string]string
}

var errNotFlap = errors.New("not a line of FLAP")

// ParseFlap reads a line without its newline.
func ParseFlap(line string) (FlapLine, error) {
	m := flapLine.FindStringSubmatch(line)
	if m == nil {
		return FlapLine{}, errNotFlap
	}
	l := FlapLine{Proc: m[4], Enter: m[5] == "EN", Call: m[6], Args: map[string]string{}}
	var err error
	number := func(text string, bits int) int64 {
		n, bad := strconv.ParseInt(text, 10, bits)
		if bad != nil {
			err = fmt.Errorf("read a line of FLAP: %w", bad)
		}
		return n
	}
	l.Boot, l.PID, l.TID = time.Duration(number(m[1], 64)), uint32(number(m[2], 33)), uint32(number(m[3], 33))
	for pair := range strings.FieldsSeq(m[7]) {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return FlapLine{}, errNotFlap
		}
		l.Args[key] = value
	}
	return l, err
}

// Ends reports whether the line is the end of the call that enter began.
func (l *FlapLine) Ends(enter *FlapLine) bool {
	if l.Enter || !enter.Enter || l.PID != enter.PID || l.TID != enter.TID || l.Boot < enter.Boot {
		return false
	}
	return l.Call == enter.Call || enter.Call == flapFault && l.Call == flapFaultEnd
}
