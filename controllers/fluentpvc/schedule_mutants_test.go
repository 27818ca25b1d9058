package fluentpvc

import (
	"context"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/memapi"
)

// TestSchedulesFindBugs breaks the manager in ways in which controllers have been broken before. Each must be found, by the
// schedules from a seed on that once found it soon.
func TestSchedulesFindBugs(t *testing.T) {
	cases := map[string]struct {
		mutate func(*replica)
		want   string // part of the broken invariant
		from   uint64 // seed of the first schedule, if not 1
		only   string // disturbance without which the bug does not show
	}{
		"the status is patched without a comparison and a lock": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnPatch: memapi.WithoutLock}
			m.r.Live = reads(m, true, func(b *sondev1.FluentPVCBinding) {
				if known, ok := m.view.Objects[m.s.api.KeyOf(b)].(*sondev1.FluentPVCBinding); ok {
					b.Status = *known.Status.DeepCopy()
				}
			})
		}, want: "has not ended", from: 125},
		"a Job is created for a stale binding": {mutate: func(m *replica) {
			m.r.Live = reads(m, true, func(b *sondev1.FluentPVCBinding) {
				if known, ok := m.view.Objects[m.s.api.KeyOf(b)]; ok {
					b.ResourceVersion = known.GetResourceVersion()
				}
			})
		}, want: "is created, and", only: "a user deletes a Job"},
		"a claim of someone else is taken": {mutate: func(m *replica) {
			m.r.Live = reads(m, true, func(c *corev1.PersistentVolumeClaim) {
				c.Labels = map[string]string{sondev1.LabelKind: KindBinding, sondev1.LabelTargetPodUID: podOf(m, c)}
			})
		}, want: "someone else", only: "a claim of someone else has the name"},
		"a Job that runs counts as succeeded": {mutate: func(m *replica) {
			m.r.Own = reads(m, false, func(j *batchv1.Job) {
				j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			})
		}, want: "before it was processed"},
		"a Job that failed counts as succeeded": {mutate: func(m *replica) {
			m.r.Own = reads(m, false, func(j *batchv1.Job) {
				for i := range j.Status.Conditions {
					j.Status.Conditions[i].Type = batchv1.JobComplete
				}
			})
		}, want: "before it was processed"},
		"other Pods that use the claim are ignored": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnList: func(ctx context.Context, c client.Client, list client.ObjectList, opts ...client.ListOption) error {
				err := c.List(ctx, list, opts...)
				if pods, ok := list.(*corev1.PodList); ok {
					for i := range pods.Items {
						if pods.Items[i].Annotations[sondev1.AnnotationClaim] == "" {
							pods.Items[i].Status.Phase = corev1.PodSucceeded
						}
					}
				}
				return err
			}}
		}, want: "uses the claim", only: "another Pod uses a claim"},
		"the pause is ignored": {mutate: func(m *replica) {
			m.r.PauseConfig = memapi.Mutant{Client: m.client(false), OnGet: func(context.Context, client.Client, client.ObjectKey, client.Object) error {
				return apierrors.NewNotFound(memapi.Resource("ConfigMap"), "")
			}}
		}, want: "had the pause", only: "an admin pauses the operator"},
		"the end of a namespace is ignored": {mutate: func(m *replica) {
			m.r.Client = reads(m, false, func(ns *metav1.PartialObjectMetadata) { ns.DeletionTimestamp = nil })
		}, want: "in a namespace that is being deleted", only: "the namespace is deleted"},
		"claims are not deleted": {mutate: func(m *replica) {
			m.r.Client = memapi.Mutant{Client: m.client(false), OnDelete: func(ctx context.Context, c client.Client, o client.Object) error {
				if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
					return nil
				}
				return c.Delete(ctx, o)
			}}
		}, want: "a day later"},
		"bindings are read from the cache alone":       {mutate: func(m *replica) { m.r.Live = fromCache[*sondev1.FluentPVCBinding](m) }, want: "repeats a write"},
		"what is deleted is read from the cache alone": {mutate: func(m *replica) { m.r.Live = fromCache[*metav1.PartialObjectMetadata](m) }, want: "again", from: 255},
		"a pass is not requeued":                       {mutate: func(m *replica) { m.queue.NoRequeue = true }, want: "a day later"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			memapi.WantBug(t, tc.want, tc.from, func(t *testing.T, seed uint64) *memapi.Record {
				t.Helper()
				s := newSchedule(t, seed)
				s.mutate, s.only = tc.mutate, tc.only
				s.random()
				return &s.Record
			})
		})
	}
}

// reads returns a client that changes each object of one type that it reads.
func reads[T client.Object](m *replica, live bool, change func(T)) client.Client {
	return memapi.Mutant{Client: m.client(live), OnGet: func(ctx context.Context, c client.Client, name client.ObjectKey, o client.Object) error {
		err := c.Get(ctx, name, o)
		if read, ok := o.(T); ok && err == nil {
			change(read)
		}
		return err
	}}
}

// fromCache returns a client whose live reads of one type come from the cache.
func fromCache[T client.Object](m *replica) client.Client {
	return memapi.Mutant{Client: m.client(true), OnGet: func(ctx context.Context, c client.Client, name client.ObjectKey, o client.Object) error {
		if _, ok := o.(T); ok {
			return m.client(false).Get(ctx, name, o)
		}
		return c.Get(ctx, name, o)
	}}
}

// podOf returns the UID of the Pod whose binding has the name of a claim.
func podOf(m *replica, c *corev1.PersistentVolumeClaim) string {
	if b := m.s.bindingOf(c.Name); b != nil {
		return b.Spec.Pod.UID
	}
	return ""
}
