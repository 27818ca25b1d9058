package collector

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/audit"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

// start creates the objects of the next run, if that is allowed. Otherwise it returns another plan.
func (r *Reconciler) start(ctx context.Context, o *observation, p plan) (plan, error) {
	c := o.collector
	if other, err := r.forbidden(ctx, o); other.reason != "" || err != nil {
		return other, err
	}
	if last := o.last(); last != nil && last.number > c.Status.Runs {
		// An earlier pass could not write the status. It has to know this Job before there is another: of two it would not know the second.
		c.Status.Runs = last.number
		p.start, p.after = false, anchorDelay
		return p, nil
	}
	if running, err := r.runsUnseen(ctx, o); running || err != nil {
		p.start, p.after = false, o.growing(anchorDelay)
		return p, err
	}
	anchor, other, err := r.anchor(ctx, o)
	if anchor == nil || err != nil {
		return other, err
	}
	// The anchor may be in a namespace that was created after forbidden has read it. If that happens after this line, the anchor is gone,
	// and no releaser works without it.
	if _, other, err := r.releaseNamespace(ctx, o); other.reason != "" || err != nil {
		return other, err
	}
	number := min(c.Status.Runs, math.MaxInt64-1) + 1
	leave, err := r.takePlace(ctx, o, runName(c, number))
	if err != nil {
		return p, err
	}
	if leave == nil { // others were faster
		return planFor(o), nil
	}
	return r.run(ctx, o, p, anchor, number, leave)
}

// run creates the Secret and the Job of a run, which has a place that it leaves if there is no Job.
func (r *Reconciler) run(ctx context.Context, o *observation, p plan, anchor *corev1.ConfigMap, number int64, leave func()) (plan, error) {
	c := o.collector
	secret, err := BuildSecret(c, anchor, number)
	if err != nil {
		leave()
		return p, err
	}
	if err := r.Create(ctx, secret, fieldOwner); err != nil {
		leave()
		if apierrors.IsAlreadyExists(err) {
			return r.nameTaken(ctx, o, p, secret)
		}
		return r.refusedWrite(o, fmt.Errorf("create Secret %s: %w", secret.Name, err))
	}
	job := BuildJob(c, anchor, number, r.Image)
	job.Annotations[annotationSecret] = string(secret.UID)
	if err := r.Create(ctx, job, fieldOwner); err != nil {
		if isRefusal(err) {
			leave()
		}
		if apierrors.IsAlreadyExists(err) {
			return r.nameTaken(ctx, o, p, secret)
		}
		return r.refusedWrite(o, fmt.Errorf("create Job %s: %w", job.Name, err))
	}
	r.created(c, job)
	c.Status.Job, c.Status.Runs, c.Status.NextAttempt = job.Name, number, nil
	o.audit(ctx, "Running Helm", audit.ReleaseStarted, "job", job.Name, "generation", c.Generation, "remedy", isSpent(c))
	if p.state == reconciling {
		p.message = "Job " + job.Name + " runs Helm"
	}
	return p, nil
}

// isRefusal reports whether an error shows that an object was not created. After others it may exist.
func isRefusal(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError
}

// runsUnseen reports whether the last Job that the status knows still runs, although the cache does not have it yet. The caches of
// Collectors and of Jobs are separate, and two Jobs of a release would not know of each other.
func (r *Reconciler) runsUnseen(ctx context.Context, o *observation) (bool, error) {
	c := o.collector
	if c.Status.Runs == 0 || slices.ContainsFunc(o.runs, func(r run) bool { return r.number == c.Status.Runs }) {
		return false, nil
	}
	job := &batchv1.Job{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: c.ReleaseNamespace(), Name: runName(c, c.Status.Runs)}, job)
	if err != nil {
		return false, gone.Ignore(err)
	}
	return !target.JobEnded(job), nil
}

// nameTaken returns a plan that waits until the name of the next run's Secret and Job is free, instead of p. A pass that could not create the
// Job has left the Secret, which may hold an older spec: it is deleted. If the Job is the next run, the cache lags behind. But users can hold
// both names, the Secret's by a finalizer.
func (r *Reconciler) nameTaken(ctx context.Context, o *observation, p plan, secret *corev1.Secret) (plan, error) {
	job, why := &batchv1.Job{}, ""
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(secret), job)
	switch {
	case gone.Is(err):
		err = gone.Ignore(r.Delete(ctx, secret))
		why = "Secret " + secret.Name + " of an earlier attempt is being deleted: if it stays, remove its finalizers"
	case err == nil && isOf(o.collector, job):
		err = apierrors.NewConflict(batchv1.Resource("jobs"), job.Name, errors.New("another pass follows"))
	case err == nil:
		why = "Job " + job.Name + " is not of the operator, and has the name of the next attempt: delete it"
	}
	if err != nil {
		return plan{}, fmt.Errorf("free the name %s: %w", secret.Name, err)
	}
	p.start = false
	if p.state == reconciling {
		p.message, p.after = why, o.growing(anchorDelay)
	} else {
		p.message, p.after = p.message+"; the next look at its objects waits: "+why, maxClosedDelay
	}
	return p, nil
}

// forbidden returns a plan that waits if the requester or the operator lacks a right.
func (r *Reconciler) forbidden(ctx context.Context, o *observation) (plan, error) {
	c := o.collector
	in, other, err := r.releaseNamespace(ctx, o)
	if in == nil || err != nil {
		return other, err
	}
	namespace := in.Name
	// Later attempts, and looking for drift, rest on the consent of the namespace's admin.
	if c.Status.Attempts == 0 && c.Status.ReleasedGeneration != c.Generation {
		decision, err := r.Reviews.ReviewJobs(ctx, o.requester, namespace)
		if err != nil {
			return plan{}, err
		}
		if !decision.Allowed {
			return plan{state: stalled, reason: sondev1.ReasonAccessRevoked, message: decision.Reason + ". " + askForRetry(c), after: refusedDelay}, nil
		}
	}
	for _, what := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Group: "batch", Version: "v1", Resource: "jobs", Namespace: namespace},
		{Verb: "create", Version: "v1", Resource: "secrets", Namespace: namespace},
		{Verb: "create", Version: "v1", Resource: "configmaps", Namespace: namespace},
	} {
		allowed, err := r.Permitted(ctx, what)
		if err != nil {
			return plan{}, err
		}
		if !allowed {
			return notOpened(o), nil
		}
	}
	return r.closedByLabel(ctx, o, in)
}

// releaseNamespace returns the namespace of the release. If it does not exist, or has another UID than the stamp names, it returns a plan
// that waits instead. A namespace that was deleted and created again may have another owner, who has opened it for their own Collectors.
func (r *Reconciler) releaseNamespace(ctx context.Context, o *observation) (*corev1.Namespace, plan, error) {
	in := &corev1.Namespace{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: o.collector.ReleaseNamespace()}, in)
	switch {
	case err != nil:
		p, err := r.refusedWrite(o, fmt.Errorf("get Namespace %s: %w", o.collector.ReleaseNamespace(), err))
		return nil, p, err
	case !in.DeletionTimestamp.IsZero():
		return nil, noNamespace(o), nil
	case string(in.UID) != o.namespaceUID:
		return nil, plan{
			state: stalled, reason: sondev1.ReasonNamespaceReplaced,
			message: fmt.Sprintf("namespace %s was deleted and created again after this spec was admitted. %s", in.Name, askForRetry(o.collector)),
		}, nil
	}
	return in, plan{}, nil
}

func noNamespace(o *observation) plan {
	return plan{
		state: stalled, reason: sondev1.ReasonNamespaceReplaced, after: maxClosedDelay,
		message: fmt.Sprintf("namespace %s is being deleted, or does not exist: create it, and let its admin run kubectl sonde collector open -n %[1]s. %s",
			o.collector.ReleaseNamespace(), askForRetry(o.collector)),
	}
}

// closedByLabel returns a plan that waits if a cluster admin has closed the release's namespace, or if the Collector's namespace is no hub.
// The webhook has checked both, but they may have changed since.
func (r *Reconciler) closedByLabel(ctx context.Context, o *observation, in *corev1.Namespace) (plan, error) {
	c := o.collector
	if in.Labels[sondev1.LabelOptOut] == "true" {
		return plan{
			state: stalled, reason: sondev1.ReasonOptedOut, after: refusedDelay,
			message: fmt.Sprintf("a cluster admin has closed namespace %s by the label %s=true: ask them to remove it", in.Name, sondev1.LabelOptOut),
		}, nil
	}
	if c.Namespace == in.Name {
		return plan{}, nil
	}
	hub := &corev1.Namespace{}
	if err := r.Live.Get(ctx, client.ObjectKey{Name: c.Namespace}, hub); err != nil {
		return plan{}, fmt.Errorf("get Namespace %s: %w", c.Namespace, err)
	}
	if hub.Labels[sondev1.LabelHub] != "true" {
		return plan{
			state: stalled, reason: sondev1.ReasonHubNotAllowed, after: refusedDelay,
			message: fmt.Sprintf("releases in other namespaces are allowed only from a namespace that a cluster admin has labelled %s=true: create the Collector in namespace %s", sondev1.LabelHub, in.Name),
		}, nil
	}
	return plan{}, nil
}

func notOpened(o *observation) plan {
	return o.closed(sondev1.ReasonNamespaceNotOpened, fmt.Sprintf("the operator may not create Jobs in namespace %s: ask its admin to run kubectl sonde collector open -n %[1]s", o.collector.ReleaseNamespace()))
}

// closed is a plan that waits for a right. The longer it is missing, the longer is the wait.
func (o *observation) closed(reason, message string) plan {
	after := minClosedDelay
	if c := condition(o.collector, sondev1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue && c.Reason == reason {
		after = min(max(o.now.Sub(c.LastTransitionTime.Time)/4, minClosedDelay), maxClosedDelay)
	}
	return plan{state: stalled, reason: reason, message: message, after: after}
}

// refusedWrite turns a refusal of the API server into a plan that waits.
func (r *Reconciler) refusedWrite(o *observation, err error) (plan, error) {
	switch {
	case apierrors.IsAlreadyExists(err):
		// The cache lags behind: the Job is there.
		return plan{}, apierrors.NewConflict(batchv1.Resource("jobs"), o.collector.Name, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), gone.Is(err): // a 404 of the whole path says nothing of the namespace
		return noNamespace(o), nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err): // a quota, or a policy
		return o.closed(release.ReasonForbidden, err.Error()), nil
	}
	return plan{}, err
}

// anchor returns the anchor of the release, which it creates if it does not exist. Without one it returns a plan that waits.
func (r *Reconciler) anchor(ctx context.Context, o *observation) (*corev1.ConfigMap, plan, error) {
	c := o.collector
	anchor := BuildAnchor(c)
	found, err := r.readAnchor(ctx, client.ObjectKeyFromObject(anchor))
	if err != nil {
		p, err := r.refusedWrite(o, err)
		return nil, p, err
	}
	if found == nil {
		if err = r.Create(ctx, anchor, fieldOwner); err == nil {
			return anchor, plan{}, nil
		}
		p, err := r.refusedWrite(o, fmt.Errorf("create ConfigMap %s: %w", anchor.Name, err))
		return nil, p, err
	}
	if !found.DeletionTimestamp.IsZero() {
		return nil, o.removing(), nil
	}
	if found.Labels[sondev1.LabelUID] == string(c.UID) {
		anchor.UID = found.UID
		return anchor, plan{}, nil
	}
	removed, err := r.removeOrphan(ctx, found)
	if apierrors.IsForbidden(err) {
		return nil, notOpened(o), nil
	}
	if err != nil {
		return nil, plan{}, err
	}
	if removed {
		return nil, o.removing(), nil
	}
	holder := "ConfigMap " + anchor.Name + ", which no Collector made"
	if owner := found.Annotations[sondev1.AnnotationOwner]; owner != "" {
		holder = "Collector " + owner
	}
	return nil, plan{state: stalled, reason: sondev1.ReasonReleaseNameTaken, after: refusedDelay, message: fmt.Sprintf(
		"release %s in namespace %s belongs to %s: choose another tenant.instance", c.ReleaseName(), c.ReleaseNamespace(), holder)}, nil
}

// removing waits for the end of an earlier release.
func (o *observation) removing() plan {
	return plan{state: reconciling, reason: sondev1.ReasonReleasing, message: "the release of an earlier Collector is being removed", after: o.growing(anchorDelay)}
}

// clean deletes the Secret of a run whose report this pass has read, and all earlier runs. The last Job stays, for its log. The operator may
// not read Secrets, so it knows its own by their UID: users can write a Job with the name and the annotations of a run.
func (r *Reconciler) clean(ctx context.Context, o *observation) error {
	if o.reported == nil {
		return nil
	}
	var errs []error
	last := o.last().job
	if uid := last.Annotations[annotationSecret]; uid != "" {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: last.Namespace, Name: last.Name, UID: types.UID(uid)}}
		errs = append(errs, ignoreForbidden(sweep.Delete(ctx, r.Client, secret)))
	}
	for _, run := range o.runs[:len(o.runs)-1] {
		if run.job.DeletionTimestamp.IsZero() && run.ended() {
			errs = append(errs, ignoreForbidden(sweep.Delete(ctx, r.Client, run.job)))
		}
	}
	return errors.Join(errs...)
}
