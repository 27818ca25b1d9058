// Package fluentpvc follows the volumes of Pods that name a FluentPVC. When such a Pod exists, it creates a binding and the claim
// that the Pod waits for. When the Pod has ended, it creates a Job that processes the data, and deletes the claim after the Job has
// succeeded. The webhook (webhooks/sidecar) has put volume and sidecar into the Pod, and creates nothing.
//
//	states.go   the state machine, as a table
//	rebind.go   bindings that were lost
//	observe.go  what a pass reads
//	act.go      what it writes
//	report.go   status, conditions and Events
//	build.go    the objects
//	setup.go    caches and watches
package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/health"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/pause"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// fieldOwner of the status.
const fieldOwner = client.FieldOwner("sonde-fluentpvc")

// Reconciler follows one claim in each request: the claim, its binding, and its Pod. A request names the claim. No decision depends
// on state from earlier passes, but for the delay between evictions.
type Reconciler struct {
	// Client reads Pods, FluentPVCs and bindings from the cache, which needs IndexFields.
	client.Client
	// Own reads claims and Jobs of bindings from a cache (Cache).
	Own client.Reader
	// Live reads from the API server what must not be stale, and what the cache leaves out.
	Live client.Reader
	// Verify returns an error for a FluentPVC that the webhook for FluentPVCs has not admitted as it is.
	Verify func(*sondev1.FluentPVC) error
	// Permitted reports whether the operator has a right. An error means that the API server did not answer.
	Permitted func(context.Context, authorizationv1.ResourceAttributes) (bool, error)
	// PauseConfig reads the ConfigMap of the pause.
	PauseConfig client.Reader
	// Key of the signed claim names.
	Key []byte
	// Namespace of the operator.
	Namespace string
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	Watchdog  *health.Watchdog

	evictions evictionBackoff
}

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=fluentpvcs,verbs=get;list;watch
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=fluentpvcbindings,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=fluentpvcbindings/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// The right to create and delete claims and Jobs is not here: the admin of a namespace binds ClusterRole sonde-fluentpvc
// (config/rbac/user_roles.yaml).

// Reconcile makes one pass over a claim.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	paused, err := pause.Requested(ctx, r.PauseConfig, r.Namespace)
	if err != nil || paused {
		return ctrl.Result{}, err // the end of the pause wakes every binding and every waiting Pod
	}
	binding := &sondev1.FluentPVCBinding{}
	found, err := read(ctx, r.Client, req.NamespacedName, binding)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("get binding: %w", err)
	}
	if !found {
		if binding, err = r.bind(ctx, req.NamespacedName); binding == nil || err != nil {
			return pass.RequeueOnConflict(ctrl.Result{}, err)
		}
	}
	if !binding.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	return r.pass(ctx, binding, !found)
}

// bind creates the binding of the first Pod that has this claim. Without such a Pod, rebind does it.
func (r *Reconciler) bind(ctx context.Context, key types.NamespacedName) (*sondev1.FluentPVCBinding, error) {
	pod, ref, err := r.firstPod(ctx, key)
	if err != nil {
		return nil, err
	}
	if pod == nil {
		return r.rebind(ctx, key)
	}
	f := &sondev1.FluentPVC{}
	switch found, err := read(ctx, r.Live, client.ObjectKey{Name: ref.FluentPVC}, f); {
	case err != nil:
		return nil, fmt.Errorf("get FluentPVC: %w", err)
	case !found:
		r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, "FluentPVCNotFound", "CreateClaim",
			"FluentPVC %s was deleted, and the Pod's volume has no FluentPVCBinding: create the FluentPVC again, or delete the Pod", ref.FluentPVC)
		return nil, nil
	}
	pod, err = r.checkPod(ctx, pod, f, key.Name)
	if pod == nil || err != nil {
		return nil, err
	}
	binding, err := r.createBinding(ctx, BuildBinding(f, sondev1.ObjectReference{Name: pod.Name, UID: string(pod.UID)}, key))
	if refusal(err) { // a quota or a policy; without a binding nothing else says it
		r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ClaimRefused", "CreateClaim", "%s", text.OneLine(fmt.Sprintf(
			"claim %s is not created, and the operator tries again: %v", key.Name, err), maxNote))
	}
	return binding, err
}

// createBinding returns nil if the namespace or the kind is being deleted. The cache may not have a binding yet that an earlier pass
// created, so it looks for it first: a creation that the API server refuses counts as a write, too.
func (r *Reconciler) createBinding(ctx context.Context, binding *sondev1.FluentPVCBinding) (*sondev1.FluentPVCBinding, error) {
	switch found, err := read(ctx, r.Live, client.ObjectKeyFromObject(binding), &sondev1.FluentPVCBinding{}); {
	case err != nil:
		return nil, fmt.Errorf("get binding: %w", err)
	case found:
		return nil, behind(binding)
	}
	if err := r.Create(ctx, binding, fieldOwner); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil, apierrors.NewConflict(sondev1.GroupVersion.WithResource("fluentpvcbindings").GroupResource(), binding.Name, err)
		}
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || gone.Is(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("create binding: %w", err)
	}
	return binding, nil
}

// checkPod reads the Pod, and returns nil unless the webhook has made it as it is: an annotation can be written later, and also a
// dry run has a signed one. A Pod's containers, volumes and ServiceAccount never change.
func (r *Reconciler) checkPod(ctx context.Context, cached *corev1.Pod, f *sondev1.FluentPVC, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	found, err := read(ctx, r.Live, client.ObjectKeyFromObject(cached), pod)
	if !found || pod.UID != cached.UID {
		return nil, err
	}
	closed, err := r.closed(ctx, pod.Namespace)
	if err != nil {
		return nil, err
	}
	named, err := sidecar.Named(pod)
	if err == nil {
		err = r.Verify(f)
	}
	switch {
	case err != nil:
	case closed:
		err = fmt.Errorf("a cluster admin has closed the namespace to FluentPVCs by the label %s=true: ask them to remove it", sondev1.LabelOptOut)
	case named != f.Name:
		err = fmt.Errorf("the Pod does not name FluentPVC %s", f.Name)
	}
	if err == nil {
		err = errors.Join(sidecar.CheckServiceAccount(&f.Spec.PVCFinalizerJobSpecTemplate, pod.Spec.ServiceAccountName), r.checkCount(ctx, pod.Namespace, f))
	}
	isSidecar := func(c corev1.Container) bool { return c.Name == f.Spec.SidecarContainerTemplate.Name }
	if err == nil && !slices.ContainsFunc(pod.Spec.Containers, isSidecar) && !slices.ContainsFunc(pod.Spec.InitContainers, isSidecar) {
		err = errors.New("the Pod has no sidecar")
	}
	if err == nil {
		return pod, nil
	}
	r.Recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ClaimRefused", "CreateClaim", "%s", text.OneLine(fmt.Sprintf(
		"claim %s is not created: %v: delete the Pod and create it again", name, err), maxNote))
	return nil, nil
}

// closed reports whether a cluster admin has closed a namespace. The webhook refuses new Pods there, but a Pod may get its
// annotations later, with a name that was signed before.
func (r *Reconciler) closed(ctx context.Context, namespace string) (bool, error) {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	_, err := read(ctx, r.Client, client.ObjectKey{Name: namespace}, ns)
	return ns.Labels[sondev1.LabelOptOut] == "true", err
}

// checkCount holds the bound of the webhook also for Pods that have passed it otherwise.
func (r *Reconciler) checkCount(ctx context.Context, namespace string, f *sondev1.FluentPVC) error {
	var all sondev1.FluentPVCBindingList
	if err := r.List(ctx, &all, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list bindings: %w", err)
	}
	n := int32(0)
	for i := range all.Items {
		if all.Items[i].Spec.FluentPVC.Name == f.Name {
			n++
		}
	}
	if most := f.Spec.MaxBindings; most > 0 && n >= most {
		return fmt.Errorf("the namespace has %d volumes of FluentPVC %s, and spec.maxBindings allows %d", n, f.Name, most)
	}
	return nil
}

// firstPod returns the oldest Pod that has not ended and whose annotation names this claim. Two Pods have the same claim if someone
// copied the first before its binding existed.
func (r *Reconciler) firstPod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, claim.Ref, error) {
	pods, err := podsOf(ctx, r.Client, key.Namespace, key.Name)
	if err != nil {
		return nil, claim.Ref{}, err
	}
	var first *corev1.Pod
	var named claim.Ref
	for i := range pods {
		p := &pods[i]
		ref, valid := claim.Parse(r.Key, p.Namespace, p.Annotations[sondev1.AnnotationClaim])
		if !valid || ref.Claim != key.Name || ended(p) {
			continue
		}
		if first == nil || p.CreationTimestamp.Before(&first.CreationTimestamp) {
			first, named = p, ref
		}
	}
	return first, named, nil
}

// pass observes, plans, acts and reports. It takes one row of the state machine, and the next ones while these need no write but
// the status. created says that this pass has just created the binding.
func (r *Reconciler) pass(ctx context.Context, binding *sondev1.FluentPVCBinding, created bool) (ctrl.Result, error) {
	before := binding.DeepCopy()
	o, err := r.observe(ctx, binding, false)
	if err == nil {
		o.created = created
	}
	if err == nil && o.claim != nil && before.Status.Phase == "" {
		// An earlier pass has created the claim. It has written the status as well, unless it was ended or the cache is behind.
		_, err = r.template(ctx, binding)
	}
	if err != nil {
		return pass.RequeueOnConflict(ctrl.Result{}, err)
	}
	var done result
	for range transitions { // a bound: no row leads back to a phase that the pass has left
		if o, done, err = r.step(ctx, o); err != nil || !done.moved || done.deleted {
			break
		}
	}
	if done.deleted || o == nil {
		return ctrl.Result{}, err
	}
	if apierrors.IsConflict(err) { // the status would be refused, too: the pass read a stale object
		return pass.RequeueOnConflict(ctrl.Result{}, err)
	}
	report(o, done)
	if !equality.Semantic.DeepEqual(before.Status, binding.Status) {
		if perr := r.patchStatus(ctx, o, before); perr != nil {
			return pass.RequeueOnConflict(ctrl.Result{}, perr)
		}
		r.recordEvents(before, o, done)
	}
	return pass.RequeueOnConflict(ctrl.Result{RequeueAfter: done.again(o)}, err)
}

// patchStatus fails with a conflict if the status was written after the pass read it. It asks for that first, because a patch that the API
// server refuses counts as a write, too. If only metadata has changed, the patch gets the version that the API server has.
func (r *Reconciler) patchStatus(ctx context.Context, o *observation, before *sondev1.FluentPVCBinding) error {
	if !o.compared {
		current := &sondev1.FluentPVCBinding{}
		found, err := read(ctx, r.Live, client.ObjectKeyFromObject(before), current)
		switch {
		case err != nil:
			return fmt.Errorf("get binding: %w", err)
		case !found || current.UID != before.UID || current.Generation != before.Generation || !equality.Semantic.DeepEqual(current.Status, before.Status):
			return behind(before)
		}
		before.ResourceVersion = current.ResourceVersion
	}
	return pass.PatchStatus(ctx, r.Client, o.binding, before, &before.Status, &o.binding.Status, fieldOwner)
}
