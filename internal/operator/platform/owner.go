package platform

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnerClusterRole owns the objects that the operator creates for itself. When the install is removed, garbage
// collection deletes them too: no webhook without a server remains, and no right to run privileged Pods.
const OwnerClusterRole = "sonde-manager"

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=sonde-manager,verbs=get

// Owner returns the UID of OwnerClusterRole, or "" if it does not exist. Then the object, called "Kind/name" in the
// log, has no owner and must be deleted by hand. live should not cache, so that no
// ClusterRole is cached.
func Owner(ctx context.Context, live client.Reader, object string) (types.UID, error) {
	role := metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	err := live.Get(ctx, client.ObjectKey{Name: OwnerClusterRole}, &role)
	if apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).Info("Missing the ClusterRole that should own the object; delete the object yourself when you remove the operator",
			"ClusterRole", OwnerClusterRole, "object", object)
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get ClusterRole %s: %w", OwnerClusterRole, err)
	}
	return role.GetUID(), nil
}

// OwnerReferences returns the references of an object that the ClusterRole with this UID owns, and none for "". They do
// not block the owner's deletion, so that it never hangs and needs no right to the owner's finalizers.
func OwnerReferences(owner types.UID) []metav1.OwnerReference {
	if owner == "" {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: OwnerClusterRole, UID: owner,
	}}
}

// AppliedOwners returns OwnerReferences in the form of server-side apply.
func AppliedOwners(owner types.UID) []*metaac.OwnerReferenceApplyConfiguration {
	var applied []*metaac.OwnerReferenceApplyConfiguration
	for _, r := range OwnerReferences(owner) {
		applied = append(applied, metaac.OwnerReference().WithAPIVersion(r.APIVersion).WithKind(r.Kind).WithName(r.Name).WithUID(r.UID))
	}
	return applied
}

func owned(o metav1.Object, by types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == by })
}
