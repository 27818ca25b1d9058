package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/podwatch"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// errStaleCache reports that the capture of the pass is not the one that the API server has.
var errStaleCache = errors.New("the cache is stale")

// observation is everything that one pass reads.
type observation struct {
	now              time.Time
	duration, retain time.Duration
	admission        admission
	workload         target.Workload
	pods             []*podState // in the target, the status or the Jobs, sorted by name
	jobs             int         // of the capture
	firstJob         time.Time   // when the first of them was created
	// room for more Jobs.
	room room
	// configMap and secret are the names of the capture's own objects; empty if they do not exist.
	configMap, secret string
	// compiled is set while there is no ConfigMap.
	compiled compiled
	// interfaces reports that the capture names interfaces.
	interfaces bool
	// gateConfigured reports that the webhook configuration sends the target's new Pods to the webhook. protected reports that
	// no Pod of the target's namespace ever waits at a gate.
	gateConfigured, protected bool
	// gaps of the watch of Pods.
	gaps []podwatch.Gap
	// stop is when spec.stop was set. It is read if a probe claims that it ended for that, and nil before.
	stop *outcome.Event
}

// podState is one Pod that is, was or may be captured.
type podState struct {
	uid types.UID
	// Slim forms: full Pods and Jobs take ten times the memory, and a capture may have thousands.
	pod  *slim.Pod // nil unless it is a live Pod of the target
	gone bool      // it has ended or does not exist any more
	// absent reports that it does not exist any more.
	absent bool
	// goneAt is when the last of its containers ended; leaving is set if the Pod is being deleted, and leavingAt since when. The times
	// are zero if they are not known.
	goneAt    time.Time
	leaving   bool
	leavingAt time.Time
	known     bool // the status has an entry for it
	// departed is set for a Pod that was gone before a pass found it.
	departed *departedPod
	before   sondev1.PodResult
	job      *slim.Job
	agent    *slim.Pod
	// surplus are the Pod's other Jobs (addJob).
	surplus []*slim.Job
	node    outcome.Node
	// targetNode is set for a Pod that may get a Job now.
	targetNode targetNode
	// refusal says why the Job has no Pod.
	refusal string
	// recounted is the keeper's count of a killed probe's files; recountPending reports that the keeper did not answer.
	recounted      *account.Account
	recountPending bool
	// live is the account of a running probe whose interfaces are not known to exist, or whose Pod says that its gate opened;
	// nil if the keeper did not answer.
	live *account.Account
	// onNode is the field by which the Pod shares its node's namespaces; empty if it does not.
	onNode string
	// sandbox is the name of the RuntimeClass if it is a sandbox.
	sandbox string
}

// targetNode is what a pass knows of the node of a Pod before it creates the Pod's Job.
type targetNode int

const (
	nodeUnread targetNode = iota
	nodeExists
	nodeMissing
)

// needsJob reports whether the Pod may need a Job.
func (p *podState) needsJob() bool {
	return p.pod != nil && p.job == nil && !p.before.Phase.Final()
}

// hadJob reports whether a Job was created for the Pod, as far as the pass knows.
func (p *podState) hadJob() bool { return p.job != nil || p.agent != nil || p.before.Job != "" }

// deleting reports whether the Job or its Pod is being deleted, or the Pod itself departed.
func (p *podState) deleting() bool {
	return p.departed != nil || p.job != nil && p.job.GetDeletionTimestamp() != nil || p.agent != nil && p.agent.GetDeletionTimestamp() != nil
}

// observe reads the objects of the capture from the cache, or live. It reads everything else from where it is fresh enough.
func (r *Reconciler) observe(ctx context.Context, capture sondev1.Capture, live bool) (observation, error) {
	observed := observation{now: r.Clock.Now(), interfaces: r.Kind.interfaces(capture), gaps: r.PodWatch.Gaps()}
	var err error
	common := capture.Common()
	if observed.duration, err = r.durationOf(capture); err != nil {
		return observed, fmt.Errorf("spec.duration: %w", err)
	}
	if observed.retain, err = duration.Parse(common.RetainFor); err != nil {
		return observed, fmt.Errorf("spec.retainFor: %w", err)
	}
	if !capture.CaptureStatus().Phase.Final() {
		if observed.admission, err = r.admit(ctx, capture, r.recent); err != nil {
			return observed, err
		}
		// A refused requester must not learn whether the target exists.
		if !observed.admission.refused() {
			if live {
				reader := target.Uncached(r.Client, r.Live, common.TargetNamespace, common.Target)
				observed.workload, err = target.Resolve(ctx, reader, common.TargetNamespace, common.Target)
			} else {
				observed.workload, err = target.ResolveCached(ctx, r.Client, common.TargetNamespace, common.Target)
			}
			if err != nil {
				return observed, err
			}
		}
	}
	if err := r.observeOwned(ctx, capture, live, &observed); err != nil {
		return observed, err
	}
	if capture.CaptureStatus().Phase.Final() {
		return observed, nil
	}
	if err := r.observeGateConfig(ctx, capture, &observed); err != nil {
		return observed, err
	}
	if err := r.observeRoom(ctx, capture, &observed); err != nil {
		return observed, err
	}
	if observed.mayCreateJobs() {
		// Review the right again before creating Jobs, and create none if the capture was stopped or deleted meanwhile.
		if err = r.upToDate(ctx, capture); err != nil {
			return observed, err
		}
		if observed.admission, err = r.admit(ctx, capture, r.Access); err != nil {
			return observed, err
		}
	}
	return observed, errors.Join(r.observePods(ctx, capture, &observed), r.compile(ctx, capture, &observed))
}

// durationOf returns the duration of a capture. One that lasts as long as its Pods keeps its end if the ceiling is lowered.
func (r *Reconciler) durationOf(capture sondev1.Capture) (time.Duration, error) {
	d, err := r.Ceilings.DurationOf(capture.Common())
	if s := capture.CaptureStatus(); capture.Common().Duration == "" && s.StartTime != nil && s.EndTime != nil {
		d = max(d, s.EndTime.Sub(s.StartTime.Time))
	}
	return d, err
}

// upToDate fails with a conflict if the capture changed since the pass read it. Changes of metadata that no pass reads do not count:
// a user can make them faster than passes follow.
func (r *Reconciler) upToDate(ctx context.Context, capture sondev1.Capture) error {
	metadata, err := r.metadataOf(ctx, capture)
	if gone.Ignore(err) != nil {
		return fmt.Errorf("read the current version of the capture: %w", err)
	}
	if err == nil && metadata.UID == capture.GetUID() && metadata.ResourceVersion == capture.GetResourceVersion() {
		return nil
	}
	current := r.Kind.New()
	if err == nil {
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(capture), current)
	}
	if gone.Ignore(err) != nil {
		return fmt.Errorf("read the current capture: %w", err)
	}
	if err != nil || !sameInput(current, capture) {
		return apierrors.NewConflict(schema.GroupResource{Group: sondev1.GroupVersion.Group, Resource: r.Kind.Resource}, capture.GetName(), errStaleCache)
	}
	return nil
}

// sameInput reports whether a pass would read the same from two versions of a capture.
func sameInput(a, b sondev1.Capture) bool {
	is, was := a.GetAnnotations(), b.GetAnnotations()
	return a.GetUID() == b.GetUID() && a.GetDeletionTimestamp().IsZero() &&
		is[sondev1.AnnotationRequester] == was[sondev1.AnnotationRequester] && is[sondev1.AnnotationStamp] == was[sondev1.AnnotationStamp] &&
		equality.Semantic.DeepEqual(a.CaptureSpec(), b.CaptureSpec()) && equality.Semantic.DeepEqual(a.CaptureStatus(), b.CaptureStatus())
}

// observeOwned finds the objects of the capture by its UID.
func (r *Reconciler) observeOwned(ctx context.Context, capture sondev1.Capture, live bool, observed *observation) error {
	pods := podSet{}
	pods.addKnown(capture)
	pods.addLive(observed.workload.Pods)
	whole := []client.ListOption{client.MatchingFields{target.IndexCapture: string(capture.GetUID())}}
	parts := target.Parts(capture.GetUID())
	for _, owned := range []struct {
		list  client.ObjectList
		by    []client.ListOption
		visit func(o runtime.Object)
	}{
		{&batchv1.JobList{}, parts, func(o runtime.Object) {
			if job, ok := o.(*batchv1.Job); ok {
				pods.addJob(target.SlimJob(job))
				observed.jobs++
				observed.firstJob = earlier(observed.firstJob, job.CreationTimestamp.Time)
			}
		}},
		{&corev1.PodList{}, parts, func(o runtime.Object) {
			if agent, ok := o.(*corev1.Pod); ok {
				pods.addAgent(target.SlimAgent(agent))
			}
		}},
		{metadataList("ConfigMap"), whole, keepName(&observed.configMap)},
		{metadataList("Secret"), whole, keepName(&observed.secret)},
	} {
		if err := r.eachOwned(ctx, capture, live, owned.list, owned.by, owned.visit); err != nil {
			return fmt.Errorf("list objects of the capture: %w", err)
		}
	}
	// Former Pods do not start a capture that waits for a target to be created: they may be of an earlier one of its name.
	if observed.workload.Found || !started(capture, *observed).IsZero() {
		pods.addLive(observed.workload.Former)
	}
	r.addDeparted(capture, observed, pods)
	observed.pods = pods.sorted()
	return nil
}

// hasObjects reports whether objects of the capture exist.
func (observed *observation) hasObjects() bool {
	return observed.jobs > 0 || observed.configMap != "" || observed.secret != ""
}

// keepName returns a function that stores the name of the first object that it gets.
func keepName(name *string) func(runtime.Object) {
	return func(o runtime.Object) {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok && *name == "" {
			*name = m.Name
		}
	}
}

// eachOwned visits the objects of the capture, in the cache part by part or live page by page: all at once would exceed the
// manager's memory. A visitor that keeps an object must strip it first.
func (r *Reconciler) eachOwned(ctx context.Context, capture sondev1.Capture, live bool, empty client.ObjectList, by []client.ListOption,
	visit func(runtime.Object),
) error {
	fresh := func() client.ObjectList {
		list, _ := empty.DeepCopyObject().(client.ObjectList)
		return list
	}
	each := func(list client.ObjectList) error {
		return apimeta.EachListItem(list, func(o runtime.Object) error {
			visit(o)
			return nil
		})
	}
	in := client.InNamespace(r.Options.Namespace)
	if live { // the API server has no index
		var unreadable error
		err := paging.Each(ctx, r.Live, fresh, func(page client.ObjectList) {
			unreadable = errors.Join(unreadable, each(page))
		}, in, client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())})
		return errors.Join(err, unreadable)
	}
	for _, part := range by {
		list := fresh()
		if err := r.List(ctx, list, in, part); err != nil {
			return err
		}
		if err := each(list); err != nil {
			return err
		}
	}
	return nil
}

// compile fills observed.compiled while there is no ConfigMap that holds it, and a Job may be created: not while the capture waits.
func (r *Reconciler) compile(ctx context.Context, capture sondev1.Capture, observed *observation) (err error) {
	if observed.configMap != "" || !observed.mayCreateJobs() || observed.admission.refused() {
		return nil
	}
	observed.compiled, err = r.Kind.compile(ctx, capture, observed.admission.requester.Username)
	return err
}

// metadataOf reads live the metadata of the object with o's kind and name.
func (r *Reconciler) metadataOf(ctx context.Context, o client.Object) (*metav1.PartialObjectMetadata, error) {
	kind, err := r.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", o, err)
	}
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(kind)
	return metadata, r.Live.Get(ctx, client.ObjectKeyFromObject(o), metadata)
}

func metadataList(coreKind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(coreKind + "List"))
	return list
}
