package fluentpvc

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
)

// rebind makes the binding of a claim again whose Pod has ended, and returns nil if there is none to make. The policy lets no user
// delete a binding, but cluster admins can get past it, for example when they delete the CRD.
func (r *Reconciler) rebind(ctx context.Context, key types.NamespacedName) (*sondev1.FluentPVCBinding, error) {
	c, err := r.unbound(ctx, key)
	if c == nil || err != nil {
		return nil, err
	}
	ref, valid := claim.Parse(r.Key, key.Namespace, c.Annotations[sondev1.AnnotationClaim])
	toDo := "save its data with a Pod of yours"
	if valid && ref.Claim == key.Name {
		f := &sondev1.FluentPVC{}
		found, err := read(ctx, r.Live, client.ObjectKey{Name: ref.FluentPVC}, f)
		if err != nil {
			return nil, fmt.Errorf("get FluentPVC: %w", err)
		}
		// Which ServiceAccount the Pod had is not known any more.
		if found && r.Verify(f) == nil && sidecar.CheckServiceAccount(&f.Spec.PVCFinalizerJobSpecTemplate, "") == nil {
			pod := sondev1.ObjectReference{Name: c.Annotations[sondev1.AnnotationTargetPod], UID: c.Labels[sondev1.LabelTargetPodUID]}
			return r.createBinding(ctx, BuildBinding(f, pod, key))
		}
		toDo = "create FluentPVC " + ref.FluentPVC + " again, which was deleted too or cannot be used, or " + toDo
	}
	r.Recorder.Eventf(c, nil, corev1.EventTypeWarning, "BindingLost", "Follow",
		"nothing processes this volume, because its FluentPVCBinding was deleted: %s, then run \"kubectl sonde fluentpvc discard %s -n %s\"", toDo, key.Name, key.Namespace)
	return nil, nil
}

// unbound returns a claim that this operator made, unless it is being deleted or given up. The binding goes after its claim, so the
// cache may still have a claim that is gone.
func (r *Reconciler) unbound(ctx context.Context, key types.NamespacedName) (*corev1.PersistentVolumeClaim, error) {
	if found, err := read(ctx, r.Own, key, &corev1.PersistentVolumeClaim{}); !found || err != nil {
		return nil, err
	}
	c := &corev1.PersistentVolumeClaim{}
	if found, err := read(ctx, r.Live, key, c); !found || err != nil {
		return nil, err
	}
	_, discarded := c.Annotations[sondev1.AnnotationDiscard]
	if c.Labels[sondev1.LabelKind] != KindBinding || discarded || !c.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	return c, nil
}
