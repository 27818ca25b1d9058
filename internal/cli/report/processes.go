package report

import "github.com/sonde-operator/sonde/api/v1alpha1"

// processNotes says of which Pods no packet names its process, or not all do, although that was wanted.
func processNotes(pods []v1alpha1.PodResult) []string {
	return grouped(pods, func(p *v1alpha1.PodResult) string {
		switch {
		case p.Processes == nil || p.Processes.Message == "":
			return ""
		case p.Processes.Named > 0:
			return "not all processes are named: " + p.Processes.Message
		}
		return "processes are not named: " + p.Processes.Message
	}, inBrackets)
}
