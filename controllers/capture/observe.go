package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/paging"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/sweep"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// errBehind: what the pass works on is not what the API server has.
var errBehind = errors.New("the cache is behind")

// observed is everything that one pass reads.
type observed struct {
	now              time.Time
	duration, retain time.Duration
	admission        admission
	workload         target.Workload
	pods             []*podSeen // of the target, of the status and of the Jobs, by name
	jobs             int        // that were made for the capture
	firstJob         time.Time  // when the first of them was
	// room for further Jobs.
	room room
	// configMap and secret are the names of the capture's own, where there are some.
	configMap, secret string
	// compiled is what the probes are to be told beyond the spec, as long as there is no ConfigMap.
	compiled compiled
}

// podSeen is one Pod that is, or was, captured or to be.
type podSeen struct {
	uid types.UID
	// What the cache hands out of a Pod or a Job takes ten times what is kept of it here, and a capture may have thousands.
	pod    *slim.Pod // nil unless it is a live Pod of the target
	gone   bool      // it has ended or does not exist any more
	known  bool      // it has an entry in the status
	before sondev1.PodResult
	job    *slim.Job
	agent  *slim.Pod
	node   outcome.Node
	// refusal is why the Job has no Pod.
	refusal string
	// recounted is what the files of a killed probe hold; uncounted says that its keeper did not answer.
	recounted *account.Account
	uncounted bool
	// onNode is the field by which the Pod is one with its node; empty if it is not.
	onNode string
	// sandbox is the RuntimeClass, where it is a sandbox.
	sandbox string
}

// lacksJob reports whether a Job may have to be made for the Pod.
func (p *podSeen) lacksJob() bool {
	return p.pod != nil && p.job == nil && !p.before.Phase.Final()
}

// made reports whether a Job was made for the Pod, as far as can be seen.
func (p *podSeen) made() bool { return p.job != nil || p.agent != nil || p.before.Job != "" }

// leaving reports whether the Job, or its Pod, is being deleted.
func (p *podSeen) leaving() bool {
	return p.job != nil && p.job.GetDeletionTimestamp() != nil || p.agent != nil && p.agent.GetDeletionTimestamp() != nil
}

// observe reads what was made for the capture from the cache, or live; all else from where it is fresh enough.
func (r *Reconciler) observe(ctx context.Context, capture sondev1.Capture, live bool) (observed, error) {
	seen := observed{now: r.Clock.Now()}
	var err error
	common := capture.Common()
	if seen.duration, err = r.Ceilings.DurationOf(common); err != nil {
		return seen, fmt.Errorf("spec.duration: %w", err)
	}
	if seen.retain, err = duration.Parse(common.RetainFor); err != nil {
		return seen, fmt.Errorf("spec.retainFor: %w", err)
	}
	if !capture.CaptureStatus().Phase.Final() {
		if seen.admission, err = r.admit(ctx, capture, r.Recent); err != nil {
			return seen, err
		}
		// Whoever is not admitted does not learn whether the target exists.
		if !seen.admission.refused() {
			if seen.workload, err = target.Resolve(ctx, r.Client, common.TargetNamespace, common.Target); err != nil {
				return seen, err
			}
		}
	}
	if err := r.observeOwned(ctx, capture, live, &seen); err != nil {
		return seen, err
	}
	if capture.CaptureStatus().Phase.Final() {
		return seen, nil
	}
	if err := r.observeRoom(ctx, capture, &seen); err != nil {
		return seen, err
	}
	if seen.hasRoom() {
		// A Job is never made by a right of a minute ago, nor for a capture that was stopped or deleted since.
		if err = r.upToDate(ctx, capture); err != nil {
			return seen, err
		}
		if seen.admission, err = r.admit(ctx, capture, r.Access); err != nil {
			return seen, err
		}
	}
	return seen, errors.Join(r.observePods(ctx, capture, &seen), r.compile(ctx, capture, &seen))
}

// upToDate fails with a conflict when the pass sees an older capture than there is.
func (r *Reconciler) upToDate(ctx context.Context, capture sondev1.Capture) error {
	there, err := r.metadataOf(ctx, capture)
	if sweep.IgnoreGone(err) != nil {
		return fmt.Errorf("look whether the capture has changed: %w", err)
	}
	if err != nil || there.UID != capture.GetUID() || there.ResourceVersion != capture.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Group: sondev1.GroupVersion.Group, Resource: r.Kind.Resource}, capture.GetName(), errBehind)
	}
	return nil
}

// observeOwned finds what was made for the capture, by its UID.
func (r *Reconciler) observeOwned(ctx context.Context, capture sondev1.Capture, live bool, seen *observed) error {
	pods := podSet{}
	pods.know(capture, seen.workload.Pods)
	whole := []client.ListOption{client.MatchingFields{target.IndexCapture: string(capture.GetUID())}}
	parts := target.Parts(capture.GetUID())
	for _, made := range []struct {
		list  client.ObjectList
		by    []client.ListOption
		visit func(o runtime.Object)
	}{
		{&batchv1.JobList{}, parts, func(o runtime.Object) {
			if job, ok := o.(*batchv1.Job); ok {
				pods.addJob(target.SlimJob(job))
				seen.jobs++
				seen.firstJob = earlier(seen.firstJob, job.CreationTimestamp.Time)
			}
		}},
		{&corev1.PodList{}, parts, func(o runtime.Object) {
			if agent, ok := o.(*corev1.Pod); ok {
				pods.addAgent(target.SlimPod(agent))
			}
		}},
		{metadataList("ConfigMap"), whole, nameInto(&seen.configMap)},
		{metadataList("Secret"), whole, nameInto(&seen.secret)},
	} {
		if err := r.eachOwned(ctx, capture, live, made.list, made.by, made.visit); err != nil {
			return fmt.Errorf("list objects of the capture: %w", err)
		}
	}
	seen.pods = pods.sorted()
	return nil
}

// nameInto keeps the name of the first object that it is called with.
func nameInto(name *string) func(runtime.Object) {
	return func(o runtime.Object) {
		if m, ok := o.(*metav1.PartialObjectMetadata); ok && *name == "" {
			*name = m.Name
		}
	}
}

// eachOwned visits what was made for the capture, as the cache has it, part by part, or as the API server has it: all of
// it would be more than the manager has for all that it does. Who wants to keep an object makes it small.
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
	if live { // where there is no index
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

// compile finds out what the probes are to be told, while there is no ConfigMap that holds it.
func (r *Reconciler) compile(ctx context.Context, capture sondev1.Capture, seen *observed) (err error) {
	if seen.configMap != "" || len(seen.workload.Pods) == 0 || seen.admission.refused() {
		return nil
	}
	seen.compiled, err = r.Kind.compile(ctx, capture)
	return err
}

// metadataOf reads live the metadata of the object that has o's kind and name.
func (r *Reconciler) metadataOf(ctx context.Context, o client.Object) (*metav1.PartialObjectMetadata, error) {
	kind, err := r.GroupVersionKindFor(o)
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", o, err)
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(kind)
	return there, r.Live.Get(ctx, client.ObjectKeyFromObject(o), there)
}

func metadataList(coreKind string) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(coreKind + "List"))
	return list
}
