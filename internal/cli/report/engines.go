package report

import (
	"fmt"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// engineNotes names the engines that were not the preferred ones: one note for each reason, with the first of its Pods.
func engineNotes(pods []v1alpha1.PodResult) []string {
	type key struct{ engine, message string }
	var order []key
	names := map[key][]string{}
	for _, p := range pods {
		if p.EngineMessage == "" {
			continue
		}
		k := key{p.Engine, p.EngineMessage}
		if names[k] == nil {
			order = append(order, k)
		}
		names[k] = append(names[k], p.Name)
	}
	var notes []string
	for _, k := range order {
		notes = append(notes, fmt.Sprintf("by %s: %s (%s)", k.engine, k.message, andMore(names[k])))
	}
	return notes
}
