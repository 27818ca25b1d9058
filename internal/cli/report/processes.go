package report

import "github.com/sonde-operator/sonde/api/v1alpha1"

// processNotes names the Pods whose packets, or some of them, name no process although the spec asks for it.
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
