package capture

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// pairsMargin is how much longer than a capture its key pairs are valid.
const pairsMargin = 24 * time.Hour

// DefaultParallelism is the number of calls that one pass makes at the same time: to the API server, so that the Jobs of a
// capture begin together, and to keepers. The API server's own queues protect its other clients.
const DefaultParallelism = 16

// errNameConflict: every name that an object could have is another's. Whose, is not said.
var errNameConflict = errors.New("all names for it are taken")

// acted is how acting on a plan went, for each Pod whose Job was to be made.
type acted struct {
	jobs map[types.UID]string
	errs map[types.UID]error
	// lacking are those that do not have all of the containers that were asked for.
	lacking map[types.UID]lacking
}

func (a acted) refused() bool {
	for _, err := range a.errs {
		if isRefusal(err) {
			return true
		}
	}
	return false
}

// isRefusal: trying again at once gives the same answer.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || errors.Is(err, errNameConflict)
}

// act writes the plan; it goes on after a failure, so that one Pod does not hold up the others.
func (r *Reconciler) act(ctx context.Context, capture sondev1.Capture, seen observed, todo plan) (acted, error) {
	if todo.cleanUp {
		return acted{}, r.Sweeper.Remove(ctx, r.Kind.Capture.Kind, capture.GetUID())
	}
	errs := append([]error{r.stopProbes(ctx, seen, todo.stop)},
		inParallel(r.Parallelism, todo.remove, func(job *slim.Job) error { return sweep.Delete(ctx, r.Client, job.Expand()) })...)
	errs = append(errs, inParallel(r.Parallelism, todo.evict, func(p *podSeen) error { return r.evict(ctx, p) })...)
	r.sweepAfter(ctx, capture, todo.sweep)
	done := acted{jobs: map[types.UID]string{}, errs: map[types.UID]error{}, lacking: map[types.UID]lacking{}}
	if len(todo.create) > 0 {
		r.createJobs(ctx, capture, seen, todo, &done)
	}
	for _, err := range done.errs {
		if !isRefusal(err) {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

// stopProbes asks keepers, several at a time, to end their probes. A probe whose requester lost his
// right, or that a cluster admin has paused, does not go on because its keeper cannot be reached: its
// Job is deleted.
func (r *Reconciler) stopProbes(ctx context.Context, seen observed, stops []stopping) error {
	return errors.Join(inParallel(r.Parallelism, stops, func(s stopping) error { return r.stopProbe(ctx, seen.secret, s) })...)
}

// inParallel calls do for each item, workers of them at the same time, and returns the errors in the order of the items.
func inParallel[T any](workers int, items []T, do func(T) error) []error {
	errs := make([]error, len(items))
	workqueue.ParallelizeUntil(context.Background(), max(workers, 1), len(items), func(i int) { errs[i] = do(items[i]) })
	return errs
}

func (r *Reconciler) stopProbe(ctx context.Context, secret string, s stopping) error {
	log := ctrl.LoggerFrom(ctx).WithValues("Pod", s.p.before.Name, "reason", s.reason)
	err := r.Keepers.Stop(ctx, s.p.agent.IP(), secret, s.reason)
	if err != nil && s.reason == sondev1.ReasonPaused {
		// A keeper of an older version does not know the word, and the result is worth keeping.
		err = r.Keepers.Stop(ctx, s.p.agent.IP(), secret, sondev1.ReasonStopped)
	}
	if err == nil {
		log.V(1).Info("Asked a probe to end")
		return nil
	}
	log.Info("Asking a probe to end failed", "error", err.Error())
	if s.reason != sondev1.ReasonAccessRevoked && s.reason != sondev1.ReasonPaused || s.p.job == nil {
		return nil // it is asked again, and ends by itself at the latest
	}
	log.Info("Deleting the Job of a probe that may not go on", "Job", s.p.job.GetName())
	return sweep.Delete(ctx, r.Client, s.p.job.Expand())
}

// createJobs makes the ConfigMap and the Secret, if they are not there, and then the Jobs.
func (r *Reconciler) createJobs(ctx context.Context, capture sondev1.Capture, seen observed, todo plan, done *acted) {
	configMap, err := r.ensureConfigMap(ctx, capture, seen)
	var secret string
	if err == nil {
		secret, err = r.ensureSecret(ctx, capture, seen)
	}
	var results sync.Mutex
	errs := inParallel(r.Parallelism, todo.create, func(c creation) error {
		if err != nil {
			return err
		}
		lacks, err := r.lacks(ctx, capture, c.p)
		if err != nil {
			return err
		}
		var name string
		if !lacks.all() {
			pod := c.p.pod.Expand()
			name, err = r.createJob(ctx, capture, agentjob.Plan{
				ConfigMap: configMap, Secret: secret, Pod: pod, Gate: gatedBy(capture, pod),
				Duration: c.duration, RetainFor: seen.retain, Window: seen.duration,
			})
		}
		if err != nil {
			return fmt.Errorf("create job: %w", err)
		}
		results.Lock()
		defer results.Unlock()
		if len(lacks.names) > 0 {
			done.lacking[c.p.uid] = lacks
		}
		if name != "" {
			done.jobs[c.p.uid] = name
		}
		return nil
	})
	for i, err := range errs {
		if err != nil {
			done.errs[todo.create[i].p.uid] = err
		}
	}
}

func (r *Reconciler) createJob(ctx context.Context, capture sondev1.Capture, p agentjob.Plan) (string, error) {
	names := naming.Jobs(p.Pod.Name, p.Pod.UID, capture.CaptureStatus().JobID, capture.GetUID())
	return r.createNamed(ctx, names, func(name string) (client.Object, error) {
		p.Name = name
		return agentjob.Job(r.Options, capture, p), nil
	})
}

func (r *Reconciler) ensureConfigMap(ctx context.Context, capture sondev1.Capture, seen observed) (string, error) {
	if seen.configMap != "" {
		return seen.configMap, nil
	}
	if note := seen.compiled.note; note.reason != "" {
		r.Recorder.Eventf(capture, nil, corev1.EventTypeNormal, note.reason, r.Kind.action, "%s", note.message)
	}
	common := capture.Common()
	config := r.Kind.configure(r.Options, capture, seen.admission.requester.Username, seen.compiled)
	names := naming.ConfigMaps(common.TargetNamespace, common.Target.Name, capture.GetUID())
	name, err := r.createNamed(ctx, names, func(name string) (client.Object, error) {
		return agentjob.ConfigMap(r.Options, capture, name, config)
	})
	if err != nil {
		return "", fmt.Errorf("create config map: %w", err)
	}
	return name, nil
}

func (r *Reconciler) ensureSecret(ctx context.Context, capture sondev1.Capture, seen observed) (string, error) {
	if seen.secret != "" {
		return seen.secret, nil
	}
	pairs, err := keeperapi.GeneratePairs(seen.now, seen.duration+seen.retain+agentjob.Margin+pairsMargin)
	if err != nil {
		return "", fmt.Errorf("make key pairs: %w", err)
	}
	common := capture.Common()
	names := []string{naming.Secret(common.TargetNamespace, common.Target.Name, capture.GetUID())}
	name, err := r.createNamed(ctx, names, func(name string) (client.Object, error) {
		return agentjob.Secret(r.Options, capture, name, pairs), nil
	})
	if err != nil {
		return "", fmt.Errorf("create secret: %w", err)
	}
	return name, nil
}

// createNamed creates an object under the first of names that is free. One that is there already
// with the same UID labels is what an earlier pass made, which the cache does not show yet.
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
		there, err := r.metadataOf(ctx, o)
		if sweep.IgnoreGone(err) != nil {
			return "", fmt.Errorf("look who holds a name: %w", err)
		}
		if err == nil && sameOwner(o, there) {
			return name, nil
		}
	}
	return "", errNameConflict
}

// sameOwner compares what an object was made for: the capture, and for a Job the Pod.
func sameOwner(a, b client.Object) bool {
	for _, label := range []string{sondev1.LabelUID, sondev1.LabelTargetPodUID} {
		if a.GetLabels()[label] != b.GetLabels()[label] {
			return false
		}
	}
	return b.GetDeletionTimestamp().IsZero()
}
