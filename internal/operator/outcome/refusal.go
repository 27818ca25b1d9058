package outcome

import "strings"

// remedies say what a cluster admin must do, by a part of the API server's message. NAMESPACE is the operator's namespace.
var remedies = []struct{ in, remedy string }{
	{"violates PodSecurity", "label the namespace for privileged Pods (kubectl label namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged --overwrite)"},
	{"security context constraint", "let ServiceAccount sonde-probe of namespace NAMESPACE use SecurityContextConstraints sonde-probe, which the operator creates at its start (its log says why not)"},
	{"required scc", "let ServiceAccount sonde-probe of namespace NAMESPACE use SecurityContextConstraints sonde-probe, which the operator creates at its start (its log says why not)"},
	{"exceeded quota", "raise the ResourceQuota of namespace NAMESPACE"},
}

// Refused explains the refusal of an agent's Pod: first what to do, then the API server's message, which may be truncated.
func Refused(refusal, namespace string) string {
	remedy := "allow Pods of ServiceAccount sonde-probe in namespace NAMESPACE"
	for _, r := range remedies {
		if strings.Contains(refusal, r.in) {
			remedy = r.remedy
			break
		}
	}
	return "the agent's Pod is refused; a cluster admin must " + strings.ReplaceAll(remedy, "NAMESPACE", namespace) + ": " + refusal
}
