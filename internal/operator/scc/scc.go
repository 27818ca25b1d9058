// Package scc builds the SecurityContextConstraints that admit Sonde's agents on OpenShift, and
// nothing else: one ServiceAccount may use it, and it allows what agentjob builds and no more.
package scc

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// Kind of the object.
var Kind = schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"}

// priority below that of every constraint which comes with the cluster (they have 0 or more): whoever
// may use all of them, as cluster admins and their operators do, still gets the one that he would get
// without Sonde.
const priority = -10

// +kubebuilder:rbac:groups=security.openshift.io,resources=securitycontextconstraints,resourceNames=sonde-probe,verbs=create;get;list;watch;patch;delete

// Build returns the constraints of an install, which follow its privilege setting. Each field is written out but userNamespaceLevel, which
// older clusters refuse and whose default is right: what is left out, nobody would take back when
// somebody else sets it. A list is empty and never null, because server-side apply drops nulls and
// the fields are required.
func Build(o agentjob.Options) *unstructured.Unstructured {
	privileged := o.Privilege != privilege.Capabilities
	allowed, dropped := []any{}, []any{}
	if !privileged {
		dropped = append(dropped, "ALL")
		for _, c := range privilege.Needed(true) {
			allowed = append(allowed, c.Name)
		}
	}
	u := platform.New(Kind, "", agentjob.RequiredSCC, map[string]any{
		// Sonde enters network namespaces through the processes of a node: of all that is the host's it
		// needs hostPID, and the right to setns.
		"allowHostPID":                    true,
		"allowHostDirVolumePlugin":        false,
		"allowHostIPC":                    false,
		"allowHostNetwork":                false,
		"allowHostPorts":                  false,
		"allowPrivilegedContainer":        privileged,
		"allowPrivilegeEscalation":        privileged, // the API does not let a privileged container be without it
		"defaultAllowPrivilegeEscalation": false,
		"allowedCapabilities":             allowed,
		"defaultAddCapabilities":          []any{},
		"requiredDropCapabilities":        dropped,
		"readOnlyRootFilesystem":          true,
		// Probe and keeper are different users, and have different SELinux types, in one Pod.
		"runAsUser":            map[string]any{"type": "RunAsAny"},
		"seLinuxContext":       map[string]any{"type": "RunAsAny"},
		"fsGroup":              map[string]any{"type": "RunAsAny"},
		"supplementalGroups":   map[string]any{"type": "RunAsAny"},
		"seccompProfiles":      []any{"runtime/default"},
		"volumes":              []any{"configMap", "emptyDir", "secret"},
		"allowedFlexVolumes":   []any{},
		"allowedUnsafeSysctls": []any{},
		"forbiddenSysctls":     []any{"*"},
		"users":                []any{"system:serviceaccount:" + o.Namespace + ":" + agentjob.ServiceAccount},
		"groups":               []any{},
		"priority":             int64(priority),
	})
	u.SetAnnotations(map[string]string{
		"kubernetes.io/description": "sonde-probe admits the agents of Sonde, which capture packets on nodes. Only the ServiceAccount of the agents may use it. The operator makes it and takes changes back.",
	})
	return u
}
