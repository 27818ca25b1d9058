package outcome_test

import (
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/operator/outcome"
)

func TestRefused(t *testing.T) {
	cases := map[string]struct{ refusal, want string }{
		"pod security": {`pods "x" is forbidden: violates PodSecurity "restricted:latest": host namespaces`, "kubectl label namespace sonde-system pod-security.kubernetes.io/enforce=privileged"},
		"no SCC":       {`pods "x" is forbidden: unable to validate against any security context constraint: [...]`, "SecurityContextConstraints sonde-probe"},
		"missing SCC":  {`pods "x" is forbidden: required scc/sonde-probe not found`, "SecurityContextConstraints sonde-probe"},
		"quota":        {`pods "x" is forbidden: exceeded quota: pods`, "raise the ResourceQuota of namespace sonde-system"},
		"anything":     {`admission webhook "policy" denied the request`, "allow Pods of ServiceAccount sonde-probe in namespace sonde-system"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := outcome.Refused(tc.refusal, "sonde-system")
			if !strings.Contains(got, tc.want) || !strings.HasSuffix(got, ": "+tc.refusal) || strings.Contains(got, "NAMESPACE") {
				t.Errorf("got %q, want %q and then the refusal", got, tc.want)
			}
		})
	}
}
