package capture

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestUnlistedPodsAreNotReadForever checks that a pass does not read live each deleted Pod that the status has no room to list. It does so
// shortly after the Job was created, when the cache may lack the Pod, and if the Pod has ended and still exists: only the API server knows
// when it ended.
func TestUnlistedPodsAreNotReadForever(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(begun, func(pc *sondev1.PacketCapture) {
		pc.Spec.Duration = "1h"
		for i := range sondev1.MaxPodEntries { // listed before all others
			name := fmt.Sprintf("over-%03d", i)
			pc.Status.Pods = append(pc.Status.Pods, sondev1.PodResult{
				UID: "uid-" + name, Name: name, Node: "node-a", Job: name + "-qwer", Phase: sondev1.PhaseIncomplete, Reason: sondev1.ReasonKilled,
			})
		}
	}), deployment("web-1", "web-2", "web-3")...)
	reads := 0
	w.r.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Pod); ok {
				reads++
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.remove(webPod("web-1"))
	w.remove(webPod("web-2"))
	ended := webPod("web-3")
	w.get(client.ObjectKeyFromObject(ended), ended)
	ended.Status.Phase = corev1.PodFailed
	w.update(ended)
	w.agents(w.end(done(sondev1.ReasonTargetGone)))
	for _, tc := range []struct {
		after time.Duration
		want  int
	}{{0, 3}, {staleFor + time.Second, 1}} {
		w.clock.Step(tc.after)
		w.settle()
		reads = 0
		w.pass()
		if s := w.capture().Status; reads != tc.want || s.Totals.Completed != 3 || s.PodsOmitted != 3 {
			t.Errorf("after %s: %d Pods are read live, want %d; totals %+v", tc.after, reads, tc.want, s.Totals)
		}
	}
}

// TestStoppedAt checks that the time of a stop is taken from the API server's record of writers, and only if that cannot be the time of
// a later change.
func TestStoppedAt(t *testing.T) {
	t.Parallel()
	at := dawn.Add(time.Minute)
	writer := func(when time.Time, subresource, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Time: new(metav1.NewTime(when)), Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	created := writer(dawn, "", `{"f:metadata":{"f:annotations":{".":{},"f:note":{}}},"f:spec":{".":{},"f:duration":{}}}`)
	status := writer(dawn.Add(time.Hour), "status", `{"f:status":{"f:phase":{}}}`)
	edited := writer(at, "", `{"f:metadata":{"f:annotations":{"f:monitoring.openshift.tpg/stopped-by":{}}},"f:spec":{"f:stop":{}}}`)
	for name, tc := range map[string]struct {
		entries []metav1.ManagedFieldsEntry
		want    time.Time
	}{
		"none":            {},
		"not stopped":     {entries: []metav1.ManagedFieldsEntry{created, status}},
		"by another user": {entries: []metav1.ManagedFieldsEntry{created, edited, status}, want: at},
		"by its creator": {
			entries: []metav1.ManagedFieldsEntry{writer(at, "", `{"f:metadata":{"f:generateName":{},"f:annotations":{".":{},`+
				`"f:monitoring.openshift.tpg/requester":{},"f:monitoring.openshift.tpg/stamp":{},"f:monitoring.openshift.tpg/stopped-by":{}}},`+
				`"f:spec":{".":{},"f:duration":{},"f:stop":{}}}`)},
			want: at,
		},
		"with an annotation that may have changed since": {
			entries: []metav1.ManagedFieldsEntry{writer(at, "", `{"f:metadata":{"f:annotations":{"f:note":{}}},"f:spec":{"f:stop":{}}}`)},
		},
		"with a label that may have changed since": {
			entries: []metav1.ManagedFieldsEntry{writer(at, "", `{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:stop":{}}}`)},
		},
		"by a writer of another part": {entries: []metav1.ManagedFieldsEntry{writer(at, "", `{"f:spec":{"f:stop":{}},"f:status":{}}`)}},
		"by two writers":              {entries: []metav1.ManagedFieldsEntry{edited, edited}},
		"without a time":              {entries: []metav1.ManagedFieldsEntry{{FieldsV1: edited.FieldsV1}}},
		"unreadable":                  {entries: []metav1.ManagedFieldsEntry{writer(at, "", `{"f:spec":{"f:stop"`)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stoppedAt(tc.entries); !got.Equal(tc.want) {
				t.Errorf("stopped at %v, want %v", got, tc.want)
			}
		})
	}
}

// TestEndOfPod checks when a Pod ended, and when its deletion was requested, as far as its status says so.
func TestEndOfPod(t *testing.T) {
	t.Parallel()
	finished := func(at time.Time) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}}
	}
	for name, tc := range map[string]struct {
		containers []corev1.ContainerStatus
		want       time.Time
	}{
		"no status":            {},
		"all have ended":       {containers: []corev1.ContainerStatus{finished(dawn.Add(time.Minute)), finished(dawn)}, want: dawn.Add(time.Minute)},
		"one has not ended":    {containers: []corev1.ContainerStatus{finished(dawn), {}}},
		"one without its time": {containers: []corev1.ContainerStatus{finished(dawn), finished(time.Time{})}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := endOf(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: tc.containers}}); !got.Equal(tc.want) {
				t.Errorf("ended at %v, want %v", got, tc.want)
			}
		})
	}
	pod := &corev1.Pod{}
	if got := deletedAt(pod); !got.IsZero() {
		t.Errorf("a Pod that is not deleted: %v", got)
	}
	pod.DeletionTimestamp = new(metav1.NewTime(dawn.Add(30 * time.Second)))
	if got := deletedAt(pod); !got.IsZero() {
		t.Errorf("a Pod whose grace period is not known: %v", got)
	}
	pod.DeletionGracePeriodSeconds = new(int64(30))
	if got := deletedAt(pod); !got.Equal(dawn) {
		t.Errorf("deleted at %v, want %v", got, dawn)
	}
}
