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
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// rebind makes the binding of a claim again whose Pod has ended, and returns nil if there is none to make. The policy lets no user
// delete a binding, but cluster admins can get past it, for example when they delete the CRD.
func (r *Reconciler) rebind(ctx context.Context, key types.NamespacedName) (*sondev1.FluentPVCBinding, error) {
	c, err := r.unbound(ctx, key)
	if c == nil || err != nil {
		return nil, err
	}
	ref, valid := claim.Parse(r.Key, key.Namespace, c.Annotations[sondev1.AnnotationClaim])
	toDo := ""
	if valid && ref.Claim == key.Name {
		f := &sondev1.FluentPVC{}
		found, err := read(ctx, r.Live, client.ObjectKey{Name: ref.FluentPVC}, f)
		if err != nil {
			return nil, fmt.Errorf("get FluentPVC: %w", err)
		}
		if found {
			// Which ServiceAccount the Pod had is not known any more.
			if err = r.Verify(f); err == nil {
				err = sidecar.CheckServiceAccount(&f.Spec.PVCFinalizerJobSpecTemplate, "")
			}
			if err == nil {
				pod := sondev1.ObjectReference{Name: c.Annotations[sondev1.AnnotationTargetPod], UID: c.Labels[sondev1.LabelTargetPodUID]}
				return r.createBinding(ctx, BuildBinding(f, pod, key))
			}
		}
		toDo = bindAgain(ref.FluentPVC, err)
	}
	r.Recorder.Eventf(c, nil, corev1.EventTypeWarning, "BindingLost", "Follow", "%s", text.OneLine(fmt.Sprintf(
		"nothing processes this volume, because its FluentPVCBinding was deleted: %ssave its data with a Pod of yours, and then run \"kubectl sonde fluentpvc discard %s -n %s\"",
		toDo, key.Name, key.Namespace), maxNote))
	return nil, nil
}

// bindAgain says how a volume gets its binding again. The FluentPVC was deleted or, if err is not nil, cannot be used.
func bindAgain(fluentPVC string, err error) string {
	const then = " again, and the operator makes the binding again and processes the data; or "
	if err == nil {
		return "FluentPVC " + fluentPVC + " was deleted, too: create it" + then
	}
	return fmt.Sprintf("delete FluentPVC %s, which cannot be used (%s), and create it%s", fluentPVC, text.OneLine(err.Error(), maxCause), then)
}

// maxCause bounds what an Event quotes, so that there is room for what to do.
const maxCause = 300

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
