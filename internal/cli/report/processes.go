package report

import (
	"fmt"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

// processNotes says of which Pods no packet names its process, or not all do, although that was wanted: one note for each reason,
// with the first of its Pods.
func processNotes(pods []v1alpha1.PodResult) []string {
	var order []string
	names := map[string][]string{}
	for _, p := range pods {
		if p.Processes == nil || p.Processes.Message == "" {
			continue
		}
		why := "processes are not named: " + p.Processes.Message
		if p.Processes.Named > 0 {
			why = "not all processes are named: " + p.Processes.Message
		}
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], p.Name)
	}
	var notes []string
	for _, why := range order {
		notes = append(notes, fmt.Sprintf("%s (%s)", why, andMore(names[why])))
	}
	return notes
}
