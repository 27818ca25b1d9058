package access

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/sonde-operator/sonde/internal/agentjob"
)

// RoleFluentPVC names the ClusterRole with the rights that the manager needs in a namespace with FluentPVCs, and the RoleBinding by
// which "kubectl sonde fluentpvc allow" grants them.
const RoleFluentPVC = "sonde-fluentpvc"

// GrantsFluentPVC reports whether a RoleBinding is the one that "kubectl sonde fluentpvc allow" creates for the operator in a
// namespace: it gives the manager RoleFluentPVC. The RoleBinding may have other subjects, too.
func GrantsFluentPVC(b *rbacv1.RoleBinding, operatorNamespace string) bool {
	return b.Name == RoleFluentPVC && b.RoleRef == rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: RoleFluentPVC} &&
		slices.Contains(b.Subjects, ManagerSubject(operatorNamespace))
}

// ManagerSubject returns the manager as a subject of RBAC.
func ManagerSubject(operatorNamespace string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: operatorNamespace, Name: agentjob.ManagerServiceAccount}
}
