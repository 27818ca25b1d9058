package fluentpvc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

const (
	kindBinding   = "FluentPVCBinding"
	bindingPrefix = "fluentpvcbinding.monitoring.openshift.tpg/"
	claimPrefix   = "persistentvolumeclaim/"
)

// Volume is the volume of one Pod. It has a binding, or at least a claim that the operator created.
type Volume struct {
	client  client.Client
	binding *sondev1.FluentPVCBinding
	claim   *corev1.PersistentVolumeClaim // only without a binding
}

// Find returns the volume of a binding or, if the binding is lost, of a claim. name may have a prefix, as kubectl prints it.
func Find(ctx context.Context, c client.Client, namespace, name string) (*Volume, error) {
	key := client.ObjectKey{Namespace: namespace, Name: strings.TrimPrefix(strings.TrimPrefix(name, bindingPrefix), claimPrefix)}
	binding := &sondev1.FluentPVCBinding{}
	err := c.Get(ctx, key, binding)
	if err == nil {
		return &Volume{client: c, binding: binding}, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if apierrors.IsNotFound(err) && c.Get(ctx, key, claim) == nil && claim.Labels[sondev1.LabelKind] == kindBinding {
		return &Volume{client: c, claim: claim}, nil
	}
	return nil, fmt.Errorf("get %s: %w", kindBinding, err)
}

// Reference returns the name of the binding or the claim, as kubectl prints it.
func (v *Volume) Reference() string {
	if v.binding == nil {
		return claimPrefix + v.claim.Name
	}
	return bindingPrefix + v.binding.Name
}

// Phase of the volume; empty if there is no binding.
func (v *Volume) Phase() sondev1.BindingPhase {
	switch {
	case v.binding == nil:
		return ""
	case v.binding.Status.Phase == "":
		return sondev1.BindingPending
	}
	return v.binding.Status.Phase
}

// Loss says what a discard deletes, in one line.
func (v *Volume) Loss() string {
	if v.binding == nil {
		lost := fmt.Sprintf("PersistentVolumeClaim %s: no FluentPVCBinding, so nothing will process its data", v.claim.Name)
		if f := v.fluentPVC(); f != "" {
			lost += fmt.Sprintf(", unless FluentPVC %s is created again", f)
		}
		return lost
	}
	text := fmt.Sprintf("PersistentVolumeClaim %s of Pod %s: %s", v.binding.Name, v.binding.Spec.Pod.Name, v.Phase())
	switch v.Phase() {
	case sondev1.BindingPending:
		return text + ", it has no data"
	case sondev1.BindingReady:
		return text + ", the Pod uses it; it is deleted after the Pod has ended, and no Job processes its data"
	case sondev1.BindingFinalizerJobSucceeded:
		return text + ", its data is processed"
	case sondev1.BindingDiscarded, sondev1.BindingDataLost:
		return text
	default:
		return text + ", its data is not processed"
	}
}

// Retry makes the operator process the data of a volume again whose attempts have all failed. now makes the request differ
// from earlier ones: the operator acts on each value once.
func (v *Volume) Retry(ctx context.Context, now time.Time) error {
	switch phase := v.Phase(); phase {
	case "":
		again := ""
		if f := v.fluentPVC(); f != "" {
			again = fmt.Sprintf("if FluentPVC %s was deleted, create it again, and the operator makes the binding again and processes the data; or ", f)
		}
		return fmt.Errorf("PersistentVolumeClaim %s has no FluentPVCBinding, so nothing processes its data: %ssave the data with a Pod of yours, and then run \"kubectl sonde fluentpvc discard %[1]s -n %[3]s\"",
			v.claim.Name, again, v.claim.Namespace)
	case sondev1.BindingFinalizerJobFailed:
		return v.annotate(ctx, v.binding, sondev1.AnnotationRetry, now)
	case sondev1.BindingDataLost:
		return fmt.Errorf("%s %s is %s: its claim was deleted before its data was processed, so there is nothing to retry", kindBinding, v.binding.Name, phase)
	default:
		return fmt.Errorf("%s %s is %s: only one that is %s can be retried", kindBinding, v.binding.Name, phase, sondev1.BindingFinalizerJobFailed)
	}
}

// fluentPVC returns the name of the FluentPVC of a claim without a binding, and "" if the claim does not say it. The operator also
// checks the signature that follows.
func (v *Volume) fluentPVC() string {
	name, rest, _ := strings.Cut(v.claim.Annotations[sondev1.AnnotationClaim], "/")
	if !strings.HasPrefix(rest, v.claim.Name+"/") || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return ""
	}
	return name
}

// Discard gives up the data of the volume. The operator deletes the claim, or the user does if there is no binding.
func (v *Volume) Discard(ctx context.Context, now time.Time) error {
	if v.binding != nil {
		return v.annotate(ctx, v.binding, sondev1.AnnotationDiscard, now)
	}
	// The policy sonde-fluentpvc refuses to delete a claim without the annotation.
	if err := v.annotate(ctx, v.claim, sondev1.AnnotationDiscard, now); err != nil {
		return err
	}
	if err := v.client.Delete(ctx, v.claim, client.Preconditions{UID: &v.claim.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PersistentVolumeClaim: %w", err)
	}
	return nil
}

// annotate fails if another object has the name meanwhile.
func (v *Volume) annotate(ctx context.Context, o client.Object, key string, now time.Time) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "annotations": map[string]string{key: now.UTC().Format(time.RFC3339Nano)},
	}})
	if err != nil {
		return fmt.Errorf("encode the annotation: %w", err)
	}
	if err := v.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s: %w", o.GetName(), err)
	}
	return nil
}
