package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// maxEventReads bounds how many Jobs of a capture are looked into in one pass: where the Pods of many
// Jobs are refused, it is for one reason.
const maxEventReads = 3

// recountsFor bounds how long a pass waits for keepers to count.
const recountsFor = 20 * time.Second

// Field selectors that the API server has for Events.
const (
	eventObjectUID = "involvedObject.uid"
	eventReason    = "reason"
)

// observePods looks closer at the Pods with which something seems to be wrong.
func (r *Reconciler) observePods(ctx context.Context, capture sondev1.Capture, seen *observed) error {
	eventReads := 0
	var recounts []*podSeen
	classes := map[string]bool{}
	var errs []error
	for _, p := range seen.pods {
		if p.pod != nil {
			spec := p.pod.Spec()
			p.onNode = r.Kind.OnNode(&spec)
		}
		if p.before.Phase.Final() {
			continue
		}
		errs = append(errs, r.observeTargetPod(ctx, capture, p), r.observeJob(ctx, p))
		s := seen.about(capture, p, "")
		if outcome.NeedsNode(s, seen.now) {
			errs = append(errs, r.observeNode(ctx, p))
		}
		if outcome.NeedsEvents(s, seen.now) && eventReads < maxEventReads {
			eventReads++
			errs = append(errs, r.observeRefusal(ctx, p))
		}
		if outcome.NeedsRecount(s) && seen.secret != "" {
			recounts = append(recounts, p)
		}
		if p.lacksJob() {
			errs = append(errs, r.observeRuntime(ctx, p, classes))
		}
		if p.onNode != "" {
			errs = append(errs, seen.admission.reviewNodes(ctx, r.Kind.Verb))
		}
	}
	r.observeFiles(ctx, seen.secret, recounts)
	return errors.Join(errs...)
}

// observeTargetPod finds out whether a Pod that is no longer the target's is gone or only let go.
func (r *Reconciler) observeTargetPod(ctx context.Context, capture sondev1.Capture, p *podSeen) error {
	if p.pod != nil {
		return nil
	}
	var pod corev1.Pod
	err := r.Get(ctx, client.ObjectKey{Namespace: capture.Common().TargetNamespace, Name: p.before.Name}, &pod)
	switch {
	case apierrors.IsNotFound(err):
		p.gone = true
	case err != nil:
		return fmt.Errorf("get target pod %s: %w", p.before.Name, err)
	default:
		p.gone = pod.UID != p.uid || !target.Live(&pod)
	}
	return nil
}

// observeJob asks the API server for a Job that should be there: the cache may not have it yet.
func (r *Reconciler) observeJob(ctx context.Context, p *podSeen) error {
	if p.job != nil || p.before.Job == "" {
		return nil
	}
	var job batchv1.Job
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: p.before.Job}, &job)
	if sweep.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get job %s: %w", p.before.Job, err)
	}
	if job.Labels[sondev1.LabelTargetPodUID] == string(p.uid) && job.DeletionTimestamp.IsZero() {
		p.job = target.SlimJob(&job)
	}
	return nil
}

func (r *Reconciler) observeNode(ctx context.Context, p *podSeen) error {
	var node corev1.Node
	err := r.Live.Get(ctx, client.ObjectKey{Name: p.before.Node}, &node)
	if sweep.IgnoreGone(err) != nil {
		return fmt.Errorf("get node %s: %w", p.before.Node, err)
	}
	p.node = outcome.NodeLost // also when it is not there: then it has no conditions
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			p.node = outcome.NodeReady
		}
	}
	return nil
}

// observeFiles has the keepers of killed probes count what their files hold, for recountsFor at most: what has not
// been counted by then is asked for again by the next pass, and does not hold up what this one has to write.
func (r *Reconciler) observeFiles(ctx context.Context, secret string, pods []*podSeen) {
	ctx, cancel := context.WithTimeout(ctx, recountsFor)
	defer cancel()
	inParallel(r.Parallelism, pods, func(p *podSeen) error {
		r.observeFilesOf(ctx, secret, p)
		return nil
	})
}

// observeFilesOf asks one keeper. One of an older version, which does not know how, leaves it at what the probe had told
// last.
func (r *Reconciler) observeFilesOf(ctx context.Context, secret string, p *podSeen) {
	acc, err := r.Keepers.Recount(ctx, p.agent.IP(), secret)
	var answer *keeperapi.StatusError
	switch {
	case err == nil:
		p.recounted = &acc
	case errors.As(err, &answer) && answer.Code == http.StatusNotFound:
	default:
		p.uncounted = true
		ctrl.LoggerFrom(ctx).Info("Having the files of a killed probe counted failed", "Pod", p.before.Name, "error", err.Error())
	}
}

// observeRefusal reads why the Job controller cannot create the agent's Pod: admission, quota, SCC.
func (r *Reconciler) observeRefusal(ctx context.Context, p *podSeen) error {
	var list corev1.EventList
	err := r.Live.List(ctx, &list, client.InNamespace(r.Options.Namespace),
		client.MatchingFields{eventObjectUID: string(p.job.GetUID()), eventReason: "FailedCreate"})
	if err != nil {
		return fmt.Errorf("list events of job %s: %w", p.job.GetName(), err)
	}
	var newest metav1.Time
	for i := range list.Items {
		e := &list.Items[i]
		if at := cmp.Or(e.LastTimestamp, metav1.NewTime(e.EventTime.Time), e.CreationTimestamp); p.refusal == "" || newest.Before(&at) {
			newest, p.refusal = at, e.Message
		}
	}
	return nil
}

// observeRuntime reads the Pod's RuntimeClass; known holds what was found for other Pods.
func (r *Reconciler) observeRuntime(ctx context.Context, p *podSeen, known map[string]bool) error {
	class := p.pod.Spec().RuntimeClassName
	if class == nil {
		return nil
	}
	name := *class
	if _, ok := known[name]; !ok {
		handler, err := r.runtimeHandler(ctx, name)
		if err != nil {
			return err
		}
		known[name] = target.Sandboxed(name, handler)
	}
	if known[name] {
		p.sandbox = name
	}
	return nil
}

// runtimeHandler of a RuntimeClass; empty when the class is gone, and its name has to tell.
func (r *Reconciler) runtimeHandler(ctx context.Context, name string) (string, error) {
	var class nodev1.RuntimeClass
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &class)
	if sweep.IgnoreGone(err) != nil {
		return "", fmt.Errorf("get runtime class %s: %w", name, err)
	}
	return class.Handler, nil
}
