package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/claim"
	"github.com/sonde-operator/sonde/internal/operator/fewreads"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
)

// Delays before a write that was refused is tried again. They grow with the time for which it has been refused.
const (
	minRefusedDelay = 5 * time.Second
	maxRefusedDelay = 5 * time.Minute
	// An eviction that a PodDisruptionBudget refuses is tried again soon, because the budget may have room when another Pod is ready.
	minBlockedDelay = 10 * time.Second
	maxBlockedDelay = time.Minute
	// endingDelay before a namespace that is being deleted is looked at again: the cache may lag behind a new one of its name.
	endingDelay = time.Minute
	// behindDelay before a pass is repeated whose cache lagged. An object that came and went between two lists of a watch causes no
	// event.
	behindDelay = 5 * time.Second
)

// These errors say that an object that the operator did not make has the name of one of its own.
var (
	errNameTaken  = errors.New("another object has this name, and the operator did not make it: delete it")
	errClaimTaken = errors.New("a claim has this name, and the operator did not make it, so its data is not processed: delete the Pod, not the claim; the next Pod gets a claim of another name")
)

// result of a step.
type result struct {
	// moved: the binding has another phase now. deleted: it does not exist any more.
	moved, deleted bool
	// behind: the cache says what the API server does not say.
	behind bool
	// refused is the API server's refusal of a write, and tried says which write.
	refused error
	tried   action
	// notPermitted: the refused write needs a right that the admin of the namespace has not given.
	notPermitted bool
}

// step takes the row that applies, if there is one. A row that cannot be undone is decided on live reads.
func (r *Reconciler) step(ctx context.Context, o *observation) (*observation, result, error) {
	t, ok := next(o)
	if !ok || o.namespaceEnding {
		return o, result{}, nil
	}
	if t.live && !o.live {
		live, err := r.observe(ctx, o.binding, true)
		if err != nil {
			return o, result{}, err
		}
		live.created = o.created
		o = live
		if t, ok = next(o); !ok {
			return o, result{behind: true}, nil
		}
	}
	err := r.act(ctx, o, t.act)
	o.compared = (err == nil || refusal(err)) && t.creates()
	switch {
	case refusal(err):
		return o, result{refused: err, tried: t.act, notPermitted: r.rightMissing(ctx, o.binding.Namespace, t.act, err)}, nil
	case err != nil:
		return o, result{}, err
	case t.act == deleteBinding:
		return o, result{deleted: true}, nil
	}
	moved := t.to != t.from
	if moved {
		enter(o, t)
	}
	return o, result{moved: moved && !t.endsPass()}, nil
}

// creates reports whether a row creates an object. Its action compares the binding of the cache with the API server's before.
func (t transition) creates() bool { return t.act == createClaim || t.act == createJob }

// endsPass reports whether the status is written before the next row. A claim is deleted only when the status says why: writing that fails
// if the binding in the cache is stale. And if the manager dies between both, the next one does not take a Job that this one has deleted
// for one that has not succeeded.
func (t transition) endsPass() bool {
	return t.creates() || t.to == sondev1.BindingDiscarded || t.to == sondev1.BindingFinalizerJobSucceeded
}

// enter sets the fields of the status that change with the phase.
func enter(o *observation, t transition) {
	s := &o.binding.Status
	switch {
	case t.act == createJob:
		s.Attempt++
	case t.from == sondev1.BindingFinalizerJobApplied && jobHas(batchv1.JobFailed)(o):
		s.Failures++
	case t.from == sondev1.BindingFinalizerJobFailed && t.to == sondev1.BindingOutOfUse:
		s.Failures = 0
		if request := pass.RetryRequested(o.binding.Annotations); request != "" {
			s.Retried = request
		}
	}
	s.Phase, s.PhaseTime = t.to, new(metav1.NewTime(o.now.Truncate(time.Second)))
}

// act makes the write of a row. Each may be repeated.
func (r *Reconciler) act(ctx context.Context, o *observation, a action) error {
	switch a {
	case createClaim:
		return r.createClaim(ctx, o)
	case createJob:
		return r.createJob(ctx, o)
	case deleteClaim:
		return r.deleteClaim(ctx, o)
	case deleteBinding:
		return sweep.Delete(ctx, r.Client, o.binding)
	case evictPod:
		return r.evict(ctx, o.pod)
	case nothing:
	}
	return nil
}

// deleteClaim deletes the Jobs, whose Pods would keep the claim, and then the claim.
func (r *Reconciler) deleteClaim(ctx context.Context, o *observation) error {
	var jobs batchv1.JobList
	if err := r.Own.List(ctx, &jobs, client.InNamespace(o.binding.Namespace), client.MatchingLabels{sondev1.LabelUID: string(o.binding.UID)}); err != nil {
		return fmt.Errorf("list finalizer jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if !metav1.IsControlledBy(job, o.binding) || !job.DeletionTimestamp.IsZero() {
			continue
		}
		if err := r.deleteOnce(ctx, job); err != nil {
			return err
		}
	}
	if o.claim == nil || !o.claim.DeletionTimestamp.IsZero() {
		return nil
	}
	if o.claim.Labels[sondev1.LabelUID] != string(o.binding.UID) {
		// The claim of an earlier binding of the Pod, or, if the cache is behind, of a later one.
		if _, err := r.template(ctx, o.binding); err != nil {
			return err
		}
	}
	if err := r.deleteOnce(ctx, o.claim); err != nil {
		return err
	}
	o.claim.DeletionTimestamp = new(metav1.NewTime(o.now)) // so the report says it
	return nil
}

// deleteOnce deletes an object of the cache unless an earlier pass has done so. The cache may be behind, and a deletion that changes
// nothing counts as a write, too.
func (r *Reconciler) deleteOnce(ctx context.Context, cached client.Object) error {
	current := &metav1.PartialObjectMetadata{}
	gvk, err := r.GroupVersionKindFor(cached)
	if err != nil {
		return fmt.Errorf("find the kind of %s: %w", cached.GetName(), err)
	}
	current.SetGroupVersionKind(gvk)
	found, err := read(ctx, r.Live, client.ObjectKeyFromObject(cached), current)
	switch {
	case errors.Is(err, fewreads.ErrTooLarge): // whatever it has, it exists
	case err != nil:
		return fmt.Errorf("get %s: %w", cached.GetName(), err)
	case !found || current.UID != cached.GetUID() || !current.DeletionTimestamp.IsZero():
		return nil
	}
	return sweep.Delete(ctx, r.Client, cached)
}

// template reads the binding with its whole template, which the cache leaves out. It fails with a conflict if the cache is behind: what
// the pass is about to create may have been created, used and deleted already.
func (r *Reconciler) template(ctx context.Context, b *sondev1.FluentPVCBinding) (*sondev1.FluentPVCBinding, error) {
	full := &sondev1.FluentPVCBinding{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(b), full); err != nil {
		return nil, fmt.Errorf("get binding: %w", err)
	}
	if full.UID != b.UID || full.ResourceVersion != b.ResourceVersion {
		return nil, behind(b)
	}
	return full, nil
}

// behind is the conflict of a pass that read a stale binding.
func behind(b *sondev1.FluentPVCBinding) error {
	return apierrors.NewConflict(sondev1.GroupVersion.WithResource("fluentpvcbindings").GroupResource(), b.Name, errors.New("the cache is behind"))
}

func (r *Reconciler) createClaim(ctx context.Context, o *observation) error {
	full := o.binding
	if !o.created {
		var err error
		if full, err = r.template(ctx, o.binding); err != nil {
			return err
		}
	}
	wanted := BuildClaim(full, claim.Ref{FluentPVC: full.Spec.FluentPVC.Name, Claim: full.Name}.Sign(r.Key, full.Namespace))
	err := r.Create(ctx, wanted, fieldOwner)
	if !apierrors.IsAlreadyExists(err) {
		return wrap("create claim", err)
	}
	existing := &corev1.PersistentVolumeClaim{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(wanted), existing); err != nil {
		return fmt.Errorf("get claim: %w", err)
	}
	if o.setClaim(existing); o.foreign {
		return fmt.Errorf("create claim: %w", errClaimTaken)
	}
	return nil
}

func (r *Reconciler) createJob(ctx context.Context, o *observation) error {
	full, err := r.template(ctx, o.binding)
	if err != nil {
		return err
	}
	job, err := BuildJob(full, o.binding.Status.Attempt+1)
	if err != nil {
		return fmt.Errorf("build finalizer job: %w: %w", errBadTemplate, err)
	}
	err = r.Create(ctx, job, fieldOwner)
	if !apierrors.IsAlreadyExists(err) {
		return wrap("create finalizer job", err)
	}
	existing := &batchv1.Job{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(job), existing); err != nil {
		return fmt.Errorf("get finalizer job: %w", err)
	}
	if !metav1.IsControlledBy(existing, full) {
		return fmt.Errorf("create finalizer job: %w", errNameTaken)
	}
	return nil
}

// errBadTemplate says that no Job can be made of the template.
var errBadTemplate = errors.New("the template is not usable")

// evict asks for the Pod's eviction, which a PodDisruptionBudget may refuse.
func (r *Reconciler) evict(ctx context.Context, pod *corev1.Pod) error {
	now := r.Clock.Now()
	if err := r.evictions.check(pod, now); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Evicting a Pod whose sidecar has ended", "Pod", pod.Name)
	err := r.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, &policyv1.Eviction{
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
	if apierrors.IsConflict(err) {
		return nil // another Pod has the name now
	}
	if err == nil {
		r.evictions.record(pod, now)
	}
	if apierrors.IsInternalError(err) {
		return fmt.Errorf("%w: %w", errNotEvicted, err)
	}
	return wrap("evict pod", gone.Ignore(err))
}

// errNotEvicted is the refusal of an eviction with the code 500: the API server gives it for a Pod with two PodDisruptionBudgets.
var errNotEvicted = errors.New("evict pod")

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// rightsFor are the rights that a write needs and the installation does not give.
var rightsFor = map[action][]authorizationv1.ResourceAttributes{
	createClaim: {{Verb: "create", Version: "v1", Resource: "persistentvolumeclaims"}},
	createJob:   {{Verb: "create", Group: "batch", Version: "v1", Resource: "jobs"}},
	deleteClaim: {
		{Verb: "delete", Version: "v1", Resource: "persistentvolumeclaims"}, {Verb: "delete", Group: "batch", Version: "v1", Resource: "jobs"},
	},
}

// rightMissing reports whether the API server refused a write because the namespace's admin has not bound the role, and not because
// of a quota or a policy. These answer with the same code, and users write the texts of their policies, so it asks for the right.
func (r *Reconciler) rightMissing(ctx context.Context, namespace string, a action, refused error) bool {
	// The RoleBinding of a namespace that is being deleted may be gone already.
	if !apierrors.IsForbidden(refused) || apierrors.HasStatusCause(refused, corev1.NamespaceTerminatingCause) {
		return false
	}
	for _, what := range rightsFor[a] {
		what.Namespace = namespace
		allowed, err := r.Permitted(ctx, what)
		if err != nil { // the report quotes the refusal instead, and the write is tried again anyway
			ctrl.LoggerFrom(ctx).Error(err, "Failing to learn why a write was refused")
			return false
		}
		if !allowed {
			return true
		}
	}
	return false
}

// refusal reports whether an immediate retry would fail in the same way. The API server answers 400 for a webhook that refuses without a
// code, as Kyverno does, and 500 for one that cannot be called. For etcd that does not answer it does so without a reason, but also for a
// webhook that answers 500, as those made with controller-runtime do (admission.Errored).
func refusal(err error) bool {
	var soon *tooSoonError
	return errors.As(err, &soon) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsBadRequest(err) || apierrors.ReasonForError(err) == metav1.StatusReasonInternalError || errors.Is(err, errNotEvicted) ||
		apierrors.IsInternalError(err) && strings.Contains(err.Error(), "admission webhook ") ||
		errors.Is(err, errNameTaken) || errors.Is(err, errClaimTaken) || errors.Is(err, errBadTemplate)
}
