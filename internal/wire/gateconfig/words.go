package gateconfig

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is how the waiting of a gate ended.
type Outcome string

// The outcomes. A gate that was killed, or is of another version, leaves none.
const (
	// Opened by the probe: what the Pod does is traced from its first instruction.
	Opened Outcome = "Opened"
	// Untraced says that no tracer came in time, and that the Pod starts all the same (Proceed).
	Untraced Outcome = "Untraced"
	// Refused says that no tracer came in time, and that the Pod does not start (Fail).
	Refused Outcome = "Refused"
	// Over says that the trace's last moment has passed: the Pod starts, untraced.
	Over Outcome = "Over"
	// Ended says that the Pod was told to end while it waited.
	Ended Outcome = "Ended"
)

// what tells people what an outcome means and what they can do.
var what = map[Outcome]string{
	Opened:   "the tracer is attached, the Pod starts",
	Untraced: "no tracer came: the Pod starts untraced. See the conditions of the Trace that annotation monitoring.openshift.tpg/gated-by names",
	Refused: "no tracer came, and this Pod must not start untraced. See the conditions of the Trace that annotation monitoring.openshift.tpg/gated-by " +
		"names; delete that Trace to have new Pods start without it, or set its gate.onTimeout to Proceed in a new one",
	Over:  "the trace is over: the Pod starts untraced",
	Ended: "the Pod was told to end",
}

// ExitCode of a gate with this outcome.
func (o Outcome) ExitCode() int {
	switch o {
	case Refused:
		return ExitRefused
	case Ended:
		return ExitEnded
	default:
		return 0
	}
}

// Words are the last ones of a gate: one line for people, whose beginning ParseWords reads.
func Words(o Outcome, waited time.Duration) string {
	return fmt.Sprintf("%s after %v: %s", o, waited.Round(time.Millisecond), what[o])
}

// ParseWords reads the termination message of a gate; false if it is none. Whoever owns the Pod could have written it.
func ParseWords(message string) (o Outcome, waited time.Duration, ok bool) {
	head, _, ok := strings.Cut(message, ": ")
	name, text, also := strings.Cut(head, " after ")
	waited, err := time.ParseDuration(text)
	if _, known := what[Outcome(name)]; !ok || !also || !known || err != nil || waited < 0 {
		return "", 0, false
	}
	return Outcome(name), waited, true
}
