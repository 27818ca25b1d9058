package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/account"
	"github.com/sonde-operator/sonde/internal/duration"
	"github.com/sonde-operator/sonde/internal/outcome"
	"github.com/sonde-operator/sonde/internal/pages"
	"github.com/sonde-operator/sonde/internal/target"
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
	jobs             []batchv1.Job
	// room for further Jobs.
	room room
	// configMap and secret are the names of the capture's own, where there are some.
	configMap, secret string
	// compiled is what the probes are to be told beyond the spec, as long as there is no ConfigMap.
	compiled compiled
}

// podSeen is one Pod that is, or was, captured or to be.
type podSeen struct {
	uid    types.UID
	pod    *corev1.Pod // nil unless it is a live Pod of the target
	gone   bool        // it has ended or does not exist any more
	known  bool        // it has an entry in the status
	before sondev1.PodResult
	job    *batchv1.Job
	agent  *corev1.Pod
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
	return p.job != nil && p.job.DeletionTimestamp != nil || p.agent != nil && p.agent.DeletionTimestamp != nil
}

// observe reads what was made for the capture from the cache, or live; all else from where it is fresh enough.
func (r *CaptureReconciler) observe(ctx context.Context, capture sondev1.Capture, live bool) (observed, error) {
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
func (r *CaptureReconciler) upToDate(ctx context.Context, capture sondev1.Capture) error {
	there, err := r.metadataOf(ctx, capture)
	if ignoreGone(err) != nil {
		return fmt.Errorf("look whether the capture has changed: %w", err)
	}
	if err != nil || there.UID != capture.GetUID() || there.ResourceVersion != capture.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{Group: sondev1.GroupVersion.Group, Resource: r.Kind.Resource}, capture.GetName(), errBehind)
	}
	return nil
}

// observeOwned finds what was made for the capture, by its UID.
func (r *CaptureReconciler) observeOwned(ctx context.Context, capture sondev1.Capture, live bool, seen *observed) error {
	var jobs batchv1.JobList
	var agents corev1.PodList
	configMaps, secrets := metadataList("ConfigMap"), metadataList("Secret")
	for _, list := range []client.ObjectList{&jobs, &agents, configMaps, secrets} {
		var err error
		if in := client.InNamespace(r.Options.Namespace); live { // where there is no index
			err = r.listLive(ctx, list, in, client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())})
		} else {
			err = r.List(ctx, list, in, client.MatchingFields{target.IndexCapture: string(capture.GetUID())})
		}
		if err != nil {
			return fmt.Errorf("list objects of the capture: %w", err)
		}
	}
	seen.jobs = jobs.Items
	if len(configMaps.Items) > 0 {
		seen.configMap = configMaps.Items[0].Name
	}
	if len(secrets.Items) > 0 {
		seen.secret = secrets.Items[0].Name
	}
	seen.pods = join(capture, seen.workload.Pods, jobs.Items, agents.Items)
	return nil
}

// listLive lists what the API server has, and keeps of it what the cache would: a capture's Pods as they are there would
// be more than the manager has for all that it does.
func (r *CaptureReconciler) listLive(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var kept []runtime.Object
	var unreadable error
	err := pages.Each(ctx, r.Live, func() client.ObjectList {
		page, _ := list.DeepCopyObject().(client.ObjectList)
		return page
	}, func(page client.ObjectList) {
		unreadable = errors.Join(unreadable, apimeta.EachListItem(page, func(o runtime.Object) error {
			small, err := target.Compact(o)
			if o, ok := small.(runtime.Object); ok && err == nil {
				kept = append(kept, o.DeepCopyObject())
			}
			return err
		}))
	}, opts...)
	if err = errors.Join(err, unreadable); err != nil {
		return err
	}
	return apimeta.SetList(list, kept)
}

// join brings together what is known of each Pod.
func join(capture sondev1.Capture, live []corev1.Pod, jobs []batchv1.Job, agents []corev1.Pod) []*podSeen {
	byUID := map[types.UID]*podSeen{}
	at := func(uid types.UID) *podSeen {
		if byUID[uid] == nil {
			byUID[uid] = &podSeen{uid: uid, before: sondev1.PodResult{UID: string(uid)}}
		}
		return byUID[uid]
	}
	for _, entry := range capture.CaptureStatus().Pods {
		p := at(types.UID(entry.UID))
		p.before, p.known = entry, true
	}
	for i := range live {
		p := at(live[i].UID)
		p.pod = &live[i]
		p.before.Name, p.before.Node = live[i].Name, live[i].Spec.NodeName
	}
	for i := range jobs {
		job := &jobs[i]
		p := at(types.UID(job.Labels[sondev1.LabelTargetPodUID]))
		p.job = job
		p.before.Name = cmp.Or(p.before.Name, job.Annotations[sondev1.AnnotationTargetPod])
		p.before.Node = cmp.Or(p.before.Node, job.Annotations[sondev1.AnnotationTargetNode])
	}
	for i := range agents {
		p := byUID[types.UID(agents[i].Labels[sondev1.LabelTargetPodUID])]
		// Of several, the first is the one whose account counts.
		if p != nil && (p.agent == nil || agents[i].CreationTimestamp.Before(&p.agent.CreationTimestamp)) {
			p.agent = &agents[i]
		}
	}
	pods := make([]*podSeen, 0, len(byUID))
	for uid, p := range byUID {
		if uid != "" && p.before.Name != "" {
			pods = append(pods, p)
		}
	}
	slices.SortFunc(pods, func(a, b *podSeen) int {
		return cmp.Or(cmp.Compare(a.before.Name, b.before.Name), cmp.Compare(a.uid, b.uid))
	})
	return pods
}

// compile finds out what the probes are to be told, while there is no ConfigMap that holds it.
func (r *CaptureReconciler) compile(ctx context.Context, capture sondev1.Capture, seen *observed) (err error) {
	if seen.configMap != "" || len(seen.workload.Pods) == 0 || seen.admission.refused() {
		return nil
	}
	seen.compiled, err = r.Kind.compile(ctx, capture)
	return err
}
