package capture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/sealed"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// pairsMargin is how much longer the key pairs are valid than the capture and its results last. A Job may be created long after the pairs:
// its Pod may wait a week for a place, until old results are gone, and other Pods may get that place again and again.
const pairsMargin = 366 * 24 * time.Hour

// DefaultParallelism is the number of calls that one pass makes at the same time, to the API server or to keepers. It lets
// the Jobs of a capture begin together. The API server's own queues protect its other clients.
const DefaultParallelism = 16

// errNameConflict does not name the other objects: they may belong to another user.
var errNameConflict = errors.New("other objects have all of its names: create a new capture")

// actions are the results of acting on a plan, by the UID of the Pod.
type actions struct {
	// jobs that were created, and errs where that failed.
	jobs map[types.UID]string
	errs map[types.UID]error
	// missing containers of Pods that do not have all of spec.containers.
	missing map[types.UID]missingContainers
}

func (a actions) refused() bool {
	for _, err := range a.errs {
		if isRefusal(err) {
			return true
		}
	}
	return false
}

// isRefusal reports whether an immediate retry would fail in the same way.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, errNameConflict)
}

// act writes the plan. It continues after a failure, so that one Pod does not delay the others.
func (r *Reconciler) act(ctx context.Context, capture sondev1.Capture, observed observation, planned plan) (actions, error) {
	if planned.cleanUp {
		return actions{}, r.Sweeper.Remove(ctx, r.Kind.Kind, capture.GetUID())
	}
	errs := inParallel(r.Parallelism, planned.stop, func(s stopping) error { return r.stopProbe(ctx, observed.secret, s) })
	errs = append(errs, inParallel(r.Parallelism, planned.remove, func(job *slim.Job) error { return sweep.Delete(ctx, r.Client, job.Expand()) })...)
	errs = append(errs, r.removeSurplus(ctx, capture, planned.surplus)...)
	errs = append(errs, inParallel(r.Parallelism, planned.evict, func(p *podState) error { return r.evict(ctx, p) })...)
	r.sweepNodes(ctx, capture, planned.sweep)
	done := actions{jobs: map[types.UID]string{}, errs: map[types.UID]error{}, missing: map[types.UID]missingContainers{}}
	if len(planned.create) > 0 {
		r.createJobs(ctx, capture, observed, planned, &done)
	}
	for _, err := range done.errs {
		if !isRefusal(err) {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

// removeSurplus deletes the Jobs of Pods that have another one, which the status names. The cache may be stale: it deletes none
// if the status has changed, or if the other Job is gone.
func (r *Reconciler) removeSurplus(ctx context.Context, capture sondev1.Capture, pods []*podState) []error {
	if len(pods) == 0 {
		return nil
	}
	if err := r.upToDate(ctx, capture); err != nil {
		return []error{err}
	}
	return inParallel(r.Parallelism, pods, func(p *podState) error {
		kept := p.job.Expand()
		live, err := r.metadataOf(ctx, kept)
		if err != nil || live.UID != kept.UID || live.DeletionTimestamp != nil {
			return gone.Ignore(err)
		}
		for _, job := range p.surplus {
			ctrl.LoggerFrom(ctx).Info("Deleting a second Job of a Pod", "Job", job.GetName(), "kept", kept.Name)
			if err := sweep.Delete(ctx, r.Client, job.Expand()); err != nil {
				return err
			}
		}
		return nil
	})
}

// inParallel calls do for each item, up to workers at the same time, and returns the errors in the order of the items.
func inParallel[T any](workers int, items []T, do func(T) error) []error {
	errs := make([]error, len(items))
	workqueue.ParallelizeUntil(context.Background(), max(workers, 1), len(items), func(i int) { errs[i] = do(items[i]) })
	return errs
}

// stopProbe asks a keeper to end its probe. If the keeper does not answer, and the requester lost the right or an admin paused
// the operator, it deletes the Job.
func (r *Reconciler) stopProbe(ctx context.Context, secret string, s stopping) error {
	log := ctrl.LoggerFrom(ctx).WithValues("Pod", s.p.before.Name, "reason", s.reason)
	err := r.Keepers.Stop(ctx, s.p.agent.IP(), secret, s.reason)
	if err != nil && s.reason == sondev1.ReasonPaused {
		// A keeper of an older version does not know this reason, and the result is worth keeping.
		err = r.Keepers.Stop(ctx, s.p.agent.IP(), secret, sondev1.ReasonStopped)
	}
	if err == nil {
		log.V(1).Info("Asked a probe to end")
		return nil
	}
	log.Info("Asking a probe to end failed", "error", err.Error())
	if s.reason != sondev1.ReasonAccessRevoked && s.reason != sondev1.ReasonPaused || s.p.job == nil {
		return nil // the next pass asks again, and the probe ends by itself at its deadline
	}
	log.Info("Deleting the Job of a probe that must end", "Job", s.p.job.GetName())
	return sweep.Delete(ctx, r.Client, s.p.job.Expand())
}

// createJobs creates the ConfigMap and the Secret, if they do not exist, and then the Jobs.
func (r *Reconciler) createJobs(ctx context.Context, capture sondev1.Capture, observed observation, planned plan, done *actions) {
	configMap, err := r.ensureConfigMap(ctx, capture, observed)
	var secret string
	if err == nil {
		secret, err = r.ensureSecret(ctx, capture, observed)
	}
	var results sync.Mutex
	errs := inParallel(r.Parallelism, planned.create, func(c creation) error {
		if err != nil {
			return err
		}
		missing, err := r.missingContainers(ctx, capture, c.p)
		if err != nil {
			return err
		}
		var name string
		if !missing.all() {
			pod := c.p.pod.Expand()
			name, err = r.createJob(ctx, capture, agentjob.Plan{
				ConfigMap: configMap, Secret: secret, Pod: pod, Gate: gatedBy(capture, pod),
				Duration: c.duration, RetainFor: observed.retain, Window: observed.duration, ContainersNotFound: missing.names,
			})
		}
		if err != nil {
			return fmt.Errorf("create job: %w", err)
		}
		results.Lock()
		defer results.Unlock()
		if len(missing.names) > 0 {
			done.missing[c.p.uid] = missing
		}
		if name != "" {
			done.jobs[c.p.uid] = name
		}
		return nil
	})
	for i, err := range errs {
		if err != nil {
			done.errs[planned.create[i].p.uid] = err
		}
	}
}

func (r *Reconciler) createJob(ctx context.Context, capture sondev1.Capture, p agentjob.Plan) (string, error) {
	var err error
	if p.KeeperUser, err = r.Users.Assign(ctx, r.Client, r.Options.Namespace, capture.GetUID(), p.Pod.UID); err != nil {
		return "", err
	}
	names := naming.Jobs(p.Pod.Name, p.Pod.UID, capture.CaptureStatus().JobID, capture.GetUID())
	return r.createNamed(ctx, names, func(name string) (client.Object, error) {
		p.Name = name
		return agentjob.Job(r.Options, capture, p), nil
	})
}

func (r *Reconciler) ensureConfigMap(ctx context.Context, capture sondev1.Capture, observed observation) (string, error) {
	if observed.configMap != "" {
		return observed.configMap, nil
	}
	if note := observed.compiled.note; note.reason != "" {
		r.Recorder.Eventf(capture, nil, corev1.EventTypeNormal, note.reason, r.Kind.action, "%s", note.message)
	}
	common := capture.Common()
	config := r.Kind.configure(r.Options, capture, observed.admission.requester.Username, observed.compiled)
	names := naming.ConfigMaps(common.TargetNamespace, common.Target.Name, capture.GetUID())
	name, err := r.createNamed(ctx, names, func(name string) (client.Object, error) {
		return agentjob.ConfigMap(r.Options, capture, name, config)
	})
	if err != nil {
		return "", fmt.Errorf("create config map: %w", err)
	}
	return name, nil
}

func (r *Reconciler) ensureSecret(ctx context.Context, capture sondev1.Capture, observed observation) (string, error) {
	if observed.secret != "" {
		return observed.secret, nil
	}
	pairs, err := keeperapi.GeneratePairs(observed.now, observed.duration+observed.retain+agentjob.Margin+pairsMargin)
	if err != nil {
		return "", fmt.Errorf("make key pairs: %w", err)
	}
	common := capture.Common()
	names := []string{naming.Secret(common.TargetNamespace, common.Target.Name, capture.GetUID())}
	name, err := r.createNamed(ctx, names, func(name string) (client.Object, error) {
		data := maps.Clone(pairs)
		data[captureconfig.SecretClientKey], err = sealed.Seal(r.Key, name, captureconfig.SecretClientKey, pairs[captureconfig.SecretClientKey])
		return agentjob.Secret(r.Options, capture, name, data), err
	})
	if err != nil {
		return "", fmt.Errorf("create secret: %w", err)
	}
	return name, nil
}

// createNamed creates an object under the first free name. An existing object with the same UID labels was created by an earlier
// pass and is not in the cache yet.
func (r *Reconciler) createNamed(ctx context.Context, names []string, build func(string) (client.Object, error)) (string, error) {
	for _, name := range names {
		o, err := build(name)
		if err != nil {
			return "", err
		}
		err = r.Create(ctx, o)
		if err == nil {
			ctrl.LoggerFrom(ctx).Info("Created", "object", name)
			return name, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		existing, err := r.metadataOf(ctx, o)
		if gone.Ignore(err) != nil {
			return "", fmt.Errorf("read existing object %s: %w", name, err)
		}
		if err == nil && sameOwner(o, existing) {
			return name, nil
		}
	}
	return "", errNameConflict
}

// sameOwner reports whether two objects belong to the same capture and, for Jobs, to the same Pod.
func sameOwner(a, b client.Object) bool {
	for _, label := range []string{sondev1.LabelUID, sondev1.LabelTargetPodUID} {
		if a.GetLabels()[label] != b.GetLabels()[label] {
			return false
		}
	}
	return b.GetDeletionTimestamp().IsZero()
}
