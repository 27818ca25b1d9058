package gateconfig

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is how a gate ended.
type Outcome string

// The outcomes. A gate that was killed, or is of another version, has none.
const (
	// Opened by the probe: the Pod is traced from its first instruction on.
	Opened Outcome = "Opened"
	// Untraced says that no tracer came in time, and that the Pod starts without one (Proceed).
	Untraced Outcome = "Untraced"
	// Refused says that no tracer came in time, and that the Pod does not start (Fail).
	Refused Outcome = "Refused"
	// Over says that the trace has ended: the Pod starts untraced.
	Over Outcome = "Over"
	// Ended says that the Pod was terminated while it waited.
	Ended Outcome = "Ended"
)

// explanations say what an outcome means and what the user can do.
var explanations = map[Outcome]string{
	Opened:   "the tracer is attached, the Pod starts",
	Untraced: "no tracer came: the Pod starts untraced. See the conditions of the Trace that annotation monitoring.openshift.tpg/gated-by names",
	Refused: "no tracer came, and this Pod must not start untraced. See the conditions of the Trace that annotation monitoring.openshift.tpg/gated-by " +
		"names; delete that Trace to have new Pods start without it, or set its gate.onTimeout to Proceed in a new one",
	Over:  "the trace is over: the Pod starts untraced",
	Ended: "the Pod was terminated",
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

// Message is the termination message of a gate: one line, whose start ParseMessage reads.
func Message(o Outcome, waited time.Duration) string {
	return fmt.Sprintf("%s after %v: %s", o, waited.Round(time.Millisecond), explanations[o])
}

// ParseMessage reads the termination message of a gate; false if it is not one. The Pod's owner can forge it.
func ParseMessage(message string) (o Outcome, waited time.Duration, ok bool) {
	head, _, ok := strings.Cut(message, ": ")
	name, text, found := strings.Cut(head, " after ")
	waited, err := time.ParseDuration(text)
	if _, known := explanations[Outcome(name)]; !ok || !found || !known || err != nil || waited < 0 {
		return "", 0, false
	}
	return Outcome(name), waited, true
}
