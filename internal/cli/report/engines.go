package report

import "github.com/sonde-operator/sonde/api/v1alpha1"

// engineNotes names the engines that were not the preferred ones, and why.
func engineNotes(pods []v1alpha1.PodResult) []string {
	return grouped(pods, func(p *v1alpha1.PodResult) string {
		if p.EngineMessage == "" {
			return ""
		}
		return "by " + p.Engine + ": " + p.EngineMessage
	}, inBrackets)
}

func inBrackets(text, who string) string { return text + " (" + who + ")" }
