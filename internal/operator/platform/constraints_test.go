package platform_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	securityv1 "github.com/openshift/api/security/v1"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// The limits that must hold whatever the golden files say.
func TestConstraintsAllowNothingElse(t *testing.T) {
	for _, setting := range []privilege.Setting{privilege.Privileged, privilege.Capabilities} {
		t.Run(string(setting), func(t *testing.T) {
			u := platform.SecurityContextConstraints(agentjob.Options{Namespace: "sonde-system", Privilege: setting})
			scc := typed[securityv1.SecurityContextConstraints](t, u)
			if scc.AllowHostDirVolumePlugin || scc.AllowHostIPC || scc.AllowHostNetwork || scc.AllowHostPorts || *scc.DefaultAllowPrivilegeEscalation {
				t.Errorf("allows more of the host than its processes: %+v", scc)
			}
			if diff := cmp.Diff([]string{"system:serviceaccount:sonde-system:sonde-probe"}, scc.Users); diff != "" {
				t.Errorf("users (-want +got):\n%s", diff)
			}
			if *scc.Priority >= 0 {
				t.Errorf("priority %d: would be preferred to the cluster's own constraints", *scc.Priority)
			}
			// Empty and not absent: server-side apply reverts only fields that it sets.
			for _, field := range []string{"groups", "defaultAddCapabilities", "allowedUnsafeSysctls", "allowedFlexVolumes"} {
				if diff := cmp.Diff([]any{}, u.Object[field]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", field, diff)
				}
			}
		})
	}
}
