package collector

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/gone"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
)

// start creates the objects of the next run, if that is allowed. Otherwise it returns another plan.
func (r *Reconciler) start(ctx context.Context, o *observation, p plan) (plan, error) {
	c := o.collector
	if other, err := r.forbidden(ctx, o); other.reason != "" || err != nil {
		return other, err
	}
	anchor, other, err := r.anchor(ctx, c)
	if anchor == nil || err != nil {
		return other, err
	}
	number := int64(1)
	if last := o.last(); last != nil {
		number = last.number + 1
	}
	secret, err := BuildSecret(c, anchor, number)
	if err != nil {
		return p, err
	}
	job := BuildJob(c, anchor, number, r.Image)
	for _, object := range []client.Object{secret, job} {
		if err := r.Create(ctx, object, fieldOwner); err != nil && (!apierrors.IsAlreadyExists(err) || object == client.Object(job)) {
			return r.refusedWrite(c, fmt.Errorf("create %T %s: %w", object, object.GetName(), err))
		}
	}
	c.Status.Job, c.Status.NextAttempt = job.Name, nil
	p.message = "Job " + job.Name + " runs Helm"
	return p, nil
}

// forbidden returns a plan that waits if the requester or the operator lacks a right.
func (r *Reconciler) forbidden(ctx context.Context, o *observation) (plan, error) {
	c := o.collector
	namespace := c.ReleaseNamespace()
	if c.Status.Attempts == 0 { // later attempts rest on the consent of the namespace's admin
		decision, err := r.Reviews.ReviewJobs(ctx, o.requester, namespace)
		if err != nil {
			return plan{}, err
		}
		if !decision.Allowed {
			return plan{state: stalled, reason: sondev1.ReasonAccessRevoked, message: decision.Reason, after: refusedDelay}, nil
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
			return notOpened(namespace), nil
		}
	}
	return plan{}, nil
}

func notOpened(namespace string) plan {
	return plan{state: stalled, reason: sondev1.ReasonNamespaceNotOpened, after: closedDelay, message: fmt.Sprintf(
		"the operator may not create Jobs in namespace %s: ask its admin to run kubectl sonde collector open -n %s", namespace, namespace)}
}

// refusedWrite turns a refusal of the API server into a plan that waits.
func (r *Reconciler) refusedWrite(c *sondev1.Collector, err error) (plan, error) {
	switch {
	case apierrors.IsAlreadyExists(err):
		// The cache lags behind: the Job is there.
		return plan{}, apierrors.NewConflict(batchv1.Resource("jobs"), c.Status.Job, err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
		return plan{state: stalled, reason: sondev1.ReasonNamespaceReplaced, after: closedDelay,
			message: fmt.Sprintf("namespace %s is being deleted, or does not exist: create it, and let its admin run kubectl sonde collector open -n %[1]s", c.ReleaseNamespace())}, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return plan{state: stalled, reason: sondev1.ReasonNamespaceNotOpened, after: closedDelay, message: err.Error()}, nil
	}
	return plan{}, err
}

// anchor returns the anchor of the release, which it creates if it does not exist. Without one it returns a plan that waits.
func (r *Reconciler) anchor(ctx context.Context, c *sondev1.Collector) (*corev1.ConfigMap, plan, error) {
	anchor, found := BuildAnchor(c), &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(anchor), found)
	if gone.Is(err) {
		if err = r.Create(ctx, anchor, fieldOwner); err == nil {
			return anchor, plan{}, nil
		}
		p, err := r.refusedWrite(c, fmt.Errorf("create ConfigMap %s: %w", anchor.Name, err))
		return nil, p, err
	}
	if err != nil {
		p, err := r.refusedWrite(c, fmt.Errorf("get ConfigMap %s: %w", anchor.Name, err))
		return nil, p, err
	}
	switch uid := found.Labels[sondev1.LabelUID]; {
	case !found.DeletionTimestamp.IsZero():
		return nil, wait("the release of an earlier Collector is being removed"), nil
	case uid == string(c.UID):
		return found, plan{}, nil
	case found.Labels[sondev1.LabelKind] == sondev1.CollectorKind && r.isGone(ctx, types.UID(uid)):
		if err := sweep.Delete(ctx, r.Client, found); err != nil {
			return nil, plan{}, err
		}
		return nil, wait("the release of an earlier Collector is being removed"), nil
	}
	holder := "ConfigMap " + anchor.Name + ", which no Collector made"
	if owner := found.Annotations[sondev1.AnnotationOwner]; owner != "" {
		holder = "Collector " + owner
	}
	return nil, plan{state: stalled, reason: sondev1.ReasonReleaseNameTaken, after: refusedDelay, message: fmt.Sprintf(
		"release %s in namespace %s belongs to %s: choose another tenant.instance", c.ReleaseName(), c.ReleaseNamespace(), holder)}, nil
}

func wait(message string) plan {
	return plan{state: reconciling, reason: sondev1.ReasonReleasing, message: message, after: anchorDelay}
}

// isGone reports whether no Collector has this UID.
func (r *Reconciler) isGone(ctx context.Context, uid types.UID) bool {
	var all sondev1.CollectorList
	if err := r.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return false
	}
	for i := range all.Items {
		if all.Items[i].UID == uid {
			return false
		}
	}
	return true
}

// clean deletes the Secret of a run whose report this pass has read, and all earlier runs. The last Job stays, for its log.
func (r *Reconciler) clean(ctx context.Context, o *observation) error {
	if !o.reported {
		return nil
	}
	last := o.last().job
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: last.Namespace, Name: last.Name}}
	errs := []error{ignoreForbidden(gone.Ignore(r.Delete(ctx, secret)))}
	for _, run := range o.runs[:len(o.runs)-1] {
		if run.job.DeletionTimestamp.IsZero() {
			errs = append(errs, ignoreForbidden(sweep.Delete(ctx, r.Client, run.job)))
		}
	}
	return errors.Join(errs...)
}

// removeOrphans deletes the anchors of Collectors that are gone, and with them their releases. Jobs show where they are.
func (r *Reconciler) removeOrphans(ctx context.Context, key types.NamespacedName) error {
	var jobs batchv1.JobList
	if err := r.Own.List(ctx, &jobs); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	var errs []error
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Annotations[sondev1.AnnotationOwner] != key.String() || !job.DeletionTimestamp.IsZero() {
			continue
		}
		for _, owner := range job.OwnerReferences {
			if owner.Kind == "ConfigMap" {
				anchor := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: job.Namespace, Name: owner.Name, UID: owner.UID}}
				errs = append(errs, ignoreForbidden(sweep.Delete(ctx, r.Client, anchor)))
			}
		}
	}
	return errors.Join(errs...)
}

// ignoreForbidden drops a refusal: the admin of the namespace has closed it, and keeps what is there.
func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
