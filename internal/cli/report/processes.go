package report

import "github.com/sonde-operator/sonde/api/v1alpha1"

// processNotes says in which Pods some or all packets name no process, although the spec asks for processes.
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
