package fluentpvc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/gone"
	"github.com/sonde-operator/sonde/internal/operator/paging"
)

// observation is what a pass has read of one binding.
type observation struct {
	now     time.Time
	binding *sondev1.FluentPVCBinding
	// live: read from the API server, but for other people's Pods and the namespace.
	live bool
	// created: this pass has created the binding, so it has the whole template. compared: the pass has found the binding of the cache to be
	// the API server's, right before its write.
	created, compared bool
	// pod of the binding, or nil if it is gone.
	pod *corev1.Pod
	// users are the names of other Pods that use the claim and have not ended.
	users []string
	// claim of the binding, or nil. A claim of the same name that belongs to someone else is foreign.
	claim   *corev1.PersistentVolumeClaim
	foreign bool
	// job of the current attempt, or nil.
	job *batchv1.Job
	// namespaceEnding: the namespace is being deleted, so nothing can be created in it.
	namespaceEnding bool
}

// observe reads what a pass decides by: from the caches, or from the API server if live.
func (r *Reconciler) observe(ctx context.Context, b *sondev1.FluentPVCBinding, live bool) (*observation, error) {
	o := &observation{now: r.Clock.Now(), binding: b, live: live}
	main, own := client.Reader(r.Client), r.Own
	if live {
		main, own = r.Live, r.Live
		if err := r.readRequests(ctx, b); err != nil {
			return nil, err
		}
	}
	if err := o.readPods(ctx, r.Client, main); err != nil {
		return nil, err
	}
	claim := &corev1.PersistentVolumeClaim{}
	if found, err := read(ctx, own, client.ObjectKeyFromObject(b), claim); err != nil {
		return nil, fmt.Errorf("get claim: %w", err)
	} else if found {
		o.setClaim(claim)
	}
	if attempt := b.Status.Attempt; attempt > 0 {
		job := &batchv1.Job{}
		found, err := read(ctx, own, client.ObjectKey{Namespace: b.Namespace, Name: jobName(b, attempt)}, job)
		if err != nil {
			return nil, fmt.Errorf("get job: %w", err)
		}
		if found && metav1.IsControlledBy(job, b) {
			o.job = job
		}
		if live { // after the Job, because one that is gone makes no Pod any more
			if err := o.readJobPods(ctx, r.Live); err != nil {
				return nil, err
			}
		}
	}
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	found, err := read(ctx, r.Client, client.ObjectKey{Name: b.Namespace}, ns)
	o.namespaceEnding = err == nil && (!found || !ns.DeletionTimestamp.IsZero())
	return o, err
}

// readRequests reads the annotations of the binding, by which users request retry and discard, from the API server. Whether the rest is
// stale shows when the status is written.
func (r *Reconciler) readRequests(ctx context.Context, b *sondev1.FluentPVCBinding) error {
	current := &sondev1.FluentPVCBinding{}
	found, err := read(ctx, r.Live, client.ObjectKeyFromObject(b), current)
	switch {
	case err != nil:
		return fmt.Errorf("get binding: %w", err)
	case !found || current.UID != b.UID:
		return behind(b)
	}
	b.Annotations = current.Annotations
	return nil
}

func (o *observation) setClaim(claim *corev1.PersistentVolumeClaim) {
	if o.foreign = !owns(o.binding, claim); !o.foreign {
		o.claim = claim
	}
}

// readPods reads the binding's Pod from main, and the other Pods that use the claim from the cache, which has an index.
func (o *observation) readPods(ctx context.Context, cached client.Reader, main client.Reader) error {
	b := o.binding
	pod := &corev1.Pod{}
	found, err := read(ctx, main, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.Pod.Name}, pod)
	if err != nil {
		return fmt.Errorf("get pod: %w", err)
	}
	if found && string(pod.UID) == b.Spec.Pod.UID {
		o.pod = pod
	}
	users, err := podsOf(ctx, cached, b.Namespace, b.Name)
	if err != nil {
		return err
	}
	for i := range users {
		p := &users[i]
		if string(p.UID) != b.Spec.Pod.UID && !ended(p) {
			o.users = append(o.users, p.Name)
		}
	}
	slices.Sort(o.users)
	return nil
}

// readJobPods reads the Pods of earlier finalizer Jobs from the API server: if someone deletes a Job, its Pod can outlive it, and the
// cache may not have that Pod yet.
func (o *observation) readJobPods(ctx context.Context, live client.Reader) error {
	// Any user may write the label on any number of large Pods.
	err := paging.Each(ctx, live, func() *corev1.PodList { return &corev1.PodList{} }, func(page *corev1.PodList) {
		for i := range page.Items {
			p := &page.Items[i]
			// A Pod of a Job that was deleted with --cascade=orphan has no owner. The volumes of live Pods are not read.
			owner := metav1.GetControllerOfNoCopy(p)
			ours := owner == nil || owner.Kind == "Job" && strings.HasPrefix(owner.Name, jobPrefix(o.binding))
			if ours && !ended(p) && !slices.Contains(o.users, p.Name) {
				o.users = append(o.users, p.Name)
			}
		}
	}, client.InNamespace(o.binding.Namespace), client.MatchingLabels{sondev1.LabelUID: string(o.binding.UID)})
	if err != nil {
		return fmt.Errorf("list pods of finalizer jobs: %w", err)
	}
	slices.Sort(o.users)
	return nil
}

// maxPods is the number of Pods with one claim from which on podsOf returns an error. Each pass copies these Pods, so thousands of them
// would fill the manager's memory.
const maxPods = 100

// podsOf returns the Pods of a namespace that use a claim, from the cache. From maxPods on it returns an error, because no decision may
// be made without all of them.
func podsOf(ctx context.Context, cached client.Reader, namespace, claim string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := cached.List(ctx, &pods, client.InNamespace(namespace), client.MatchingFields{IndexClaims: claim}, client.Limit(maxPods)); err != nil {
		return nil, fmt.Errorf("list pods of the claim: %w", err)
	}
	if len(pods.Items) >= maxPods {
		return nil, fmt.Errorf("claim %s is used by %d Pods or more: delete some, because a FluentPVC gives each Pod its own claim", claim, maxPods)
	}
	return pods.Items, nil
}

// read gets an object, and reports false if it does not exist.
func read(ctx context.Context, from client.Reader, key client.ObjectKey, o client.Object) (bool, error) {
	err := from.Get(ctx, key, o)
	return err == nil, gone.Ignore(err)
}
