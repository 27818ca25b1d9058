package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// gateNotes says how many gates opened and how long their Pods waited, and how each of the other gates ended.
func gateNotes(pods []v1alpha1.PodResult) []string {
	var notes, others []string
	var waited []time.Duration
	for _, p := range pods {
		switch {
		case p.Gate == nil:
		case p.Gate.Outcome == v1alpha1.GateOpened:
			waited = append(waited, time.Duration(p.Gate.WaitedMilliseconds)*time.Millisecond)
		default:
			others = append(others, fmt.Sprintf("%s (%s)", p.Name, p.Gate.Outcome))
		}
	}
	if n := len(waited); n > 0 {
		slices.Sort(waited)
		which := "1 Pod was traced from its first instruction and waited"
		if n > 1 {
			which = fmt.Sprintf("%d Pods were traced from their first instruction and waited", n)
		}
		notes = append(notes, which+" "+spread(waited))
	}
	if len(others) > 0 {
		notes = append(notes, "these gates did not open for a tracer, so the first events of their Pods may be missing: "+strings.Join(others, ", "))
	}
	return notes
}

// fewWaits is the number of waits from which on a median says more than the range.
const fewWaits = 5

// spread describes sorted waits, at least one.
func spread(waited []time.Duration) string {
	n := len(waited)
	least, most := waited[0], waited[n-1]
	switch {
	case least == most:
		return most.String()
	case n < fewWaits:
		return fmt.Sprintf("%v to %v", least, most)
	}
	median := (waited[(n-1)/2] + waited[n/2]) / 2
	return fmt.Sprintf("%v (median), at most %v", median, most)
}
