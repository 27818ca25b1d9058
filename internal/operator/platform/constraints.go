package platform

import (
	securityv1 "github.com/openshift/api/security/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// constraintsPriority is below the priority of the cluster's own constraints, 0 or more. So users who may use all
// constraints, such as cluster admins, get the same one as without Sonde.
const constraintsPriority = -10

// +kubebuilder:rbac:groups=security.openshift.io,resources=securitycontextconstraints,resourceNames=sonde-probe,verbs=create;get;list;watch;patch;delete

// SecurityContextConstraints returns the constraints that admit Sonde's agents on OpenShift. Only their ServiceAccount
// may use them. They allow no more than package agentjob needs at the privilege setting of o.
//
// Every field is written out, because the operator takes changes back only in fields that it sets. The exception is
// userNamespaceLevel, which older clusters refuse and whose default is right.
func SecurityContextConstraints(o agentjob.Options) *unstructured.Unstructured {
	privileged := o.Privilege != privilege.Capabilities
	allowed, dropped := []corev1.Capability{}, []corev1.Capability{}
	if !privileged {
		dropped = append(dropped, "ALL")
		for _, c := range privilege.Needed(true) {
			allowed = append(allowed, corev1.Capability(c.Name))
		}
	}
	scc := &securityv1.SecurityContextConstraints{
		ObjectMeta: meta("", agentjob.RequiredSCC),
		// A probe enters network namespaces through the processes of its node. It needs hostPID and nothing else of the
		// host.
		AllowHostPID:             true,
		AllowPrivilegedContainer: privileged,
		// The API allows no privileged container without it.
		AllowPrivilegeEscalation:        new(privileged),
		DefaultAllowPrivilegeEscalation: new(false),
		AllowedCapabilities:             allowed,
		DefaultAddCapabilities:          []corev1.Capability{},
		RequiredDropCapabilities:        dropped,
		ReadOnlyRootFilesystem:          true,
		// The probe and the keeper in a Pod have different users and SELinux types.
		RunAsUser:          securityv1.RunAsUserStrategyOptions{Type: securityv1.RunAsUserStrategyRunAsAny},
		SELinuxContext:     securityv1.SELinuxContextStrategyOptions{Type: securityv1.SELinuxStrategyRunAsAny},
		FSGroup:            securityv1.FSGroupStrategyOptions{Type: securityv1.FSGroupStrategyRunAsAny},
		SupplementalGroups: securityv1.SupplementalGroupsStrategyOptions{Type: securityv1.SupplementalGroupsStrategyRunAsAny},
		SeccompProfiles:    []string{corev1.SeccompProfileRuntimeDefault},
		Volumes:            []securityv1.FSType{securityv1.FSTypeConfigMap, securityv1.FSTypeEmptyDir, securityv1.FSTypeSecret},
		ForbiddenSysctls:   []string{"*"},
		Users:              []string{"system:serviceaccount:" + o.Namespace + ":" + agentjob.ServiceAccount},
		Groups:             []string{},
		Priority:           new(int32(constraintsPriority)),
	}
	scc.Annotations = map[string]string{
		"kubernetes.io/description": "sonde-probe admits the agents of Sonde, which capture packets on nodes. Only the ServiceAccount of the agents may use it. The operator makes it and takes changes back.",
	}
	u := content(securityv1.GroupVersion.WithKind("SecurityContextConstraints"), scc)
	// omitempty drops these empty lists. Without them server-side apply would keep items that others add.
	u.Object["allowedFlexVolumes"] = []any{}
	u.Object["allowedUnsafeSysctls"] = []any{}
	return u
}
