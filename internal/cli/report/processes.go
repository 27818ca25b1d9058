package report

import (
	"fmt"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// processNotes says of which Pods no packet names its process, although that was wanted: one note for each reason, with the first
// of its Pods.
func processNotes(pods []v1alpha1.PodResult) []string {
	var order []string
	names := map[string][]string{}
	for _, p := range pods {
		if p.Processes == nil || p.Processes.Message == "" {
			continue
		}
		why := p.Processes.Message
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], p.Name)
	}
	var notes []string
	for _, why := range order {
		which := names[why][0]
		if more := len(names[why]) - 1; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		notes = append(notes, fmt.Sprintf("processes are not named: %s (%s)", why, which))
	}
	return notes
}
