package outcome

import "strings"

// remedies say what a cluster admin can do, by a part of the API server's refusal of a Pod. NAMESPACE is
// the operator's.
var remedies = []struct{ in, remedy string }{
	{"violates PodSecurity", "label the namespace for privileged Pods (kubectl label namespace NAMESPACE pod-security.kubernetes.io/enforce=privileged --overwrite)"},
	{"security context constraint", "let ServiceAccount sonde-probe of namespace NAMESPACE use SecurityContextConstraints sonde-probe, which the operator makes at its start (its log says why not)"},
	{"required scc", "let ServiceAccount sonde-probe of namespace NAMESPACE use SecurityContextConstraints sonde-probe, which the operator makes at its start (its log says why not)"},
	{"exceeded quota", "raise the ResourceQuota of namespace NAMESPACE"},
}

// Refused says that the agent's Pod is refused, what to do about it, and then the refusal as it is:
// where a text is cut, it is cut there.
func Refused(refusal, namespace string) string {
	remedy := "let Pods of ServiceAccount sonde-probe be made in namespace NAMESPACE"
	for _, r := range remedies {
		if strings.Contains(refusal, r.in) {
			remedy = r.remedy
			break
		}
	}
	return "the agent's Pod is refused; a cluster admin must " + strings.ReplaceAll(remedy, "NAMESPACE", namespace) + ": " + refusal
}
