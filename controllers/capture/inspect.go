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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

// maxEventReads bounds how many Jobs have their Events read in one pass: many Jobs are refused for the same reason.
const maxEventReads = 3

// maxNodeReads bounds how many nodes a pass reads before it creates Jobs. Pods on further nodes wait for a later pass.
const maxNodeReads = 200

// recountsFor bounds how long a pass waits for keepers to count.
const recountsFor = 20 * time.Second

// Field selectors of the API server for Events.
const (
	eventObjectUID = "involvedObject.uid"
	eventReason    = "reason"
)

// observePods reads more about those Pods whose verdict needs it.
func (r *Reconciler) observePods(ctx context.Context, capture sondev1.Capture, observed *observation) error {
	eventReads := 0
	var recounts, live []*podState
	classes := map[string]bool{}
	var errs []error
	for _, p := range observed.pods {
		if p.pod != nil {
			spec := p.pod.Spec()
			p.onNode = r.Kind.OnNode(&spec)
		}
		if p.before.Phase.Final() {
			continue
		}
		errs = append(errs, r.observeTargetPod(ctx, capture, p), r.observeJob(ctx, capture, p))
		s := observed.judgeInput(capture, p, "")
		errs = append(errs, r.observeCause(ctx, capture, observed, p, outcome.ClaimedCause(s)))
		if outcome.NeedsNode(s, observed.now) {
			errs = append(errs, r.observeNode(ctx, p))
		}
		if outcome.NeedsEvents(s, observed.now) && eventReads < maxEventReads {
			eventReads++
			errs = append(errs, r.observeRefusal(ctx, p))
		}
		if outcome.NeedsRecount(s) && observed.secret != "" {
			recounts = append(recounts, p)
		}
		if (outcome.NeedsInterfaces(s) || p.needsProof(capture)) && observed.secret != "" {
			live = append(live, p)
		}
		if p.needsJob() {
			errs = append(errs, r.observeRuntime(ctx, p, classes))
		}
		if p.onNode != "" {
			errs = append(errs, observed.admission.reviewNodes(ctx, r.Kind.Verb))
		}
	}
	errs = append(errs, r.observeTargetNodes(ctx, observed))
	r.observeFiles(ctx, observed.secret, recounts)
	r.observeLive(ctx, observed.secret, live)
	return errors.Join(errs...)
}

// observeTargetPod reads whether a Pod that left the target still runs.
func (r *Reconciler) observeTargetPod(ctx context.Context, capture sondev1.Capture, p *podState) error {
	if p.pod != nil {
		return nil
	}
	return r.observeLeaving(ctx, r.Client, capture, p)
}

// observeJob reads live a Job that should exist: the cache may not have it yet.
func (r *Reconciler) observeJob(ctx context.Context, capture sondev1.Capture, p *podState) error {
	if p.job != nil || p.before.Job == "" {
		return nil
	}
	var job batchv1.Job
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Options.Namespace, Name: p.before.Job}, &job)
	if gone.Is(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get job %s: %w", p.before.Job, err)
	}
	// If the Job is gone, another capture of the Pod may have its name.
	if job.Labels[sondev1.LabelUID] == string(capture.GetUID()) && job.Labels[sondev1.LabelTargetPodUID] == string(p.uid) && job.DeletionTimestamp.IsZero() {
		p.job = target.SlimJob(&job)
	}
	return nil
}

func (r *Reconciler) observeNode(ctx context.Context, p *podState) error {
	var node corev1.Node
	err := r.Live.Get(ctx, client.ObjectKey{Name: p.before.Node}, &node)
	if gone.Ignore(err) != nil {
		return fmt.Errorf("get node %s: %w", p.before.Node, err)
	}
	p.node = outcome.NodeLost // also if it does not exist, since it has no conditions then
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			p.node = outcome.NodeReady
		}
	}
	return nil
}

// observeTargetNodes reads which nodes exist, of Pods that may get a Job now.
func (r *Reconciler) observeTargetNodes(ctx context.Context, observed *observation) error {
	var names []string
	onNode := map[string][]*podState{}
	for _, p := range observed.pods {
		if name := p.before.Node; observed.mayCreateJob(p) && (onNode[name] != nil || len(names) < maxNodeReads) {
			if onNode[name] == nil {
				names = append(names, name)
			}
			onNode[name] = append(onNode[name], p)
		}
	}
	return errors.Join(inParallel(r.Parallelism, names, func(name string) error {
		exists, err := target.NodeExists(ctx, r.Live, name)
		if err != nil {
			return err
		}
		for _, p := range onNode[name] {
			p.targetNode = nodeExists
			if !exists {
				p.targetNode = nodeMissing
			}
		}
		return nil
	})...)
}

// observeFiles asks the keepers of killed probes to count their files, for recountsFor at most. The next pass asks the
// others again.
func (r *Reconciler) observeFiles(ctx context.Context, secret string, pods []*podState) {
	ctx, cancel := context.WithTimeout(ctx, recountsFor)
	defer cancel()
	inParallel(r.Parallelism, pods, func(p *podState) error {
		r.observeFilesOf(ctx, secret, p)
		return nil
	})
}

// observeLive asks the keepers of running probes for their accounts, for recountsFor at most.
func (r *Reconciler) observeLive(ctx context.Context, secret string, pods []*podState) {
	ctx, cancel := context.WithTimeout(ctx, recountsFor)
	defer cancel()
	inParallel(r.Parallelism, pods, func(p *podState) error {
		acc, err := r.Keepers.Progress(ctx, p.agent.IP(), secret)
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("Reading the progress of a probe failed", "Pod", p.before.Name, "error", err.Error())
			return nil
		}
		p.live = &acc
		return nil
	})
}

// observeFilesOf asks one keeper. For a keeper of an older version, which cannot count, the probe's last account stays.
func (r *Reconciler) observeFilesOf(ctx context.Context, secret string, p *podState) {
	acc, err := r.Keepers.Recount(ctx, p.agent.IP(), secret)
	var answer *keeperapi.StatusError
	switch {
	case err == nil:
		p.recounted = &acc
	case errors.As(err, &answer) && answer.Code == http.StatusNotFound:
	default:
		p.recountPending = true
		ctrl.LoggerFrom(ctx).Info("Counting the files of a killed probe failed", "Pod", p.before.Name, "error", err.Error())
	}
}

// observeRefusal reads why the Job controller cannot create the agent's Pod, for example a quota or an SCC.
func (r *Reconciler) observeRefusal(ctx context.Context, p *podState) error {
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

// observeRuntime reads the Pod's RuntimeClass. known says which classes are sandboxes, for this pass.
func (r *Reconciler) observeRuntime(ctx context.Context, p *podState, known map[string]bool) error {
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

// runtimeHandler returns the handler of a RuntimeClass; empty if the class is gone.
func (r *Reconciler) runtimeHandler(ctx context.Context, name string) (string, error) {
	var class nodev1.RuntimeClass
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, &class)
	if gone.Ignore(err) != nil {
		return "", fmt.Errorf("get runtime class %s: %w", name, err)
	}
	return class.Handler, nil
}
