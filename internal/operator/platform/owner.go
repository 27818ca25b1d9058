package platform

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OwnerClusterRole owns what the operator makes for itself: when the install is removed, garbage
// collection takes that too, so that neither a webhook without a server nor a way to run privileged
// Pods is left.
const OwnerClusterRole = "sonde-manager"

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=sonde-manager,verbs=get

// Owner returns the UID of the ClusterRole that the install made, read live so that no ClusterRole is
// cached. Without it what is made has no owner and has to be deleted by hand, which is told once per
// pass; refusing to work would be worse. made names it for people, as "Kind/name".
func Owner(ctx context.Context, live client.Reader, made string) (types.UID, error) {
	role := metav1.PartialObjectMetadata{}
	role.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	err := live.Get(ctx, client.ObjectKey{Name: OwnerClusterRole}, &role)
	if apierrors.IsNotFound(err) {
		ctrl.LoggerFrom(ctx).Info("Missing the ClusterRole that should own what the operator makes; delete that yourself when you remove the operator",
			"ClusterRole", OwnerClusterRole, "made", made)
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("get ClusterRole %s: %w", OwnerClusterRole, err)
	}
	return role.GetUID(), nil
}

// References of an object that the ClusterRole with this UID owns; none without a UID. They do not block
// the owner's deletion, so that nothing hangs and no right to the owner's finalizers is needed.
func References(owner types.UID) []metav1.OwnerReference {
	if owner == "" {
		return nil
	}
	return []metav1.OwnerReference{{
		APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole", Name: OwnerClusterRole, UID: owner,
	}}
}

func owned(o metav1.Object, by types.UID) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == by })
}
