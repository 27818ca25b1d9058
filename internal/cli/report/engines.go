package report

import (
	"fmt"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// engineNotes say what packets were taken by where it is not what is preferred: one for each reason, with the first of
// its Pods.
func engineNotes(pods []v1alpha1.PodResult) []string {
	type why struct{ engine, message string }
	var order []why
	of := map[why][]string{}
	for _, p := range pods {
		if p.EngineMessage == "" {
			continue
		}
		w := why{p.Engine, p.EngineMessage}
		if of[w] == nil {
			order = append(order, w)
		}
		of[w] = append(of[w], p.Name)
	}
	var notes []string
	for _, w := range order {
		which := of[w][0]
		if more := len(of[w]) - 1; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		notes = append(notes, fmt.Sprintf("by %s: %s (%s)", w.engine, w.message, which))
	}
	return notes
}
