package capture

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// second is a kind that differs from PacketCapture only in its name.
type second struct {
	sondev1.PacketCapture `json:",inline"`
}

const secondName = "Second"

func (*second) KindName() string { return secondName }

func (s *second) DeepCopyObject() runtime.Object { return &second{*s.DeepCopy()} }

type secondList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []second `json:"items"`
}

func (l *secondList) DeepCopyObject() runtime.Object {
	c := &secondList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		c.Items = append(c.Items, second{*l.Items[i].DeepCopy()})
	}
	return c
}

func (l *secondList) Captures() []sondev1.Capture {
	var captures []sondev1.Capture
	for i := range l.Items {
		captures = append(captures, &l.Items[i])
	}
	return captures
}

// withSecond registers the kind until the test ends, and returns it. Such a test must not run in parallel.
func withSecond(t *testing.T) Kind {
	t.Helper()
	kinds, owners, indexes := kind.Captures, kind.Owners, target.Indexes
	t.Cleanup(func() { kind.Captures, kind.Owners, target.Indexes = kinds, owners, indexes })
	k := kind.PacketCapture
	k.Name, k.Resource, k.Verb, k.App = secondName, "seconds", "second", "second"
	k.New = func() sondev1.Capture { return &second{} }
	k.NewList = func() sondev1.CaptureList { return &secondList{} }
	kind.Captures, kind.Owners = append(slices.Clone(kinds), k), append(slices.Clone(owners), k.Kind)
	for _, i := range indexes {
		if i.Field == target.IndexTargetNamespace {
			target.Indexes = append(slices.Clone(indexes), target.Index{Object: k.New(), Field: i.Field, Extract: i.Extract})
		}
	}
	return Kind{
		Capture: k, action: "Second",
		interfaces: func(sondev1.Capture) bool { return false },
		details:    func(sondev1.Capture) []any { return nil },
		compile:    func(context.Context, sondev1.Capture, string) (compiled, error) { return compiled{}, nil },
		configure: func(agentjob.Options, sondev1.Capture, string, compiled) agentjob.Marshaler {
			return captureconfig.Config{Kind: secondName}
		},
	}
}

// ofSecond returns the same capture as one of the second kind.
func ofSecond(pc *sondev1.PacketCapture) *second {
	s := &second{*pc}
	s.UID = "5ec0d5ec-1111-4222-8333-444455556666"
	return s
}

// passSecond runs the reconciler of the second kind until it writes nothing.
func (w *world) passSecond(k Kind) {
	w.t.Helper()
	r := *w.r
	r.Kind = k
	for range 3 {
		if _, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: w.key}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// objectsByKind counts the Jobs, ConfigMaps and Secrets of each kind.
func (w *world) objectsByKind() map[string]int {
	w.t.Helper()
	counts := map[string]int{}
	for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		if err := w.client.List(w.t.Context(), list, client.InNamespace(operatorNamespace)); err != nil {
			w.t.Fatal(err)
		}
		switch list := list.(type) {
		case *batchv1.JobList:
			for i := range list.Items {
				counts[list.Items[i].Labels[sondev1.LabelKind]]++
			}
		case *corev1.ConfigMapList:
			for i := range list.Items {
				counts[list.Items[i].Labels[sondev1.LabelKind]]++
			}
		case *corev1.SecretList:
			for i := range list.Items {
				counts[list.Items[i].Labels[sondev1.LabelKind]]++
			}
		}
	}
	return counts
}

// TestSameNameOfTwoKinds checks that captures of two kinds with the same name, namespace and target share no objects, and
// that the end of one does not affect the other.
func TestSameNameOfTwoKinds(t *testing.T) {
	k := withSecond(t)
	withoutID := newCapture(func(pc *sondev1.PacketCapture) { pc.Spec.JobID = "" })
	w := newWorld(t, withoutID.DeepCopy(), append(deployment("web-1"), ofSecond(withoutID))...)
	w.settle()
	w.passSecond(k)
	both := map[string]int{kind.PacketCapture.Name: 3, secondName: 3}
	if diff := cmp.Diff(both, w.objectsByKind()); diff != "" {
		t.Fatalf("objects (-want +got):\n%s", diff)
	}
	var s second
	w.get(w.key, &s)
	if first := w.capture().Status.JobID; s.Status.JobID == "" || s.Status.JobID == first {
		t.Errorf("jobIds %q and %q, want two", first, s.Status.JobID)
	}
	sweep := func() {
		if err := w.r.Sweeper.All(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sweep()
	if diff := cmp.Diff(both, w.objectsByKind()); diff != "" {
		t.Errorf("after a sweep while all owners exist (-want +got):\n%s", diff)
	}
	w.remove(w.capture())
	w.pass()
	sweep()
	if diff := cmp.Diff(map[string]int{secondName: 3}, w.objectsByKind()); diff != "" {
		t.Errorf("after the PacketCapture is gone (-want +got):\n%s", diff)
	}
	w.remove(&s)
	sweep()
	if diff := cmp.Diff(map[string]int{}, w.objectsByKind()); diff != "" {
		t.Errorf("after the other is gone (-want +got):\n%s", diff)
	}
}

// TestCeilingsCountAllKinds checks that the ceilings count captures and probes of all kinds.
func TestCeilingsCountAllKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		limits ceiling.Limits
		want   string
	}{
		"room":         {ceiling.Limits{CapturesPerNamespace: 2, ProbesPerNode: 3}, "web-1 Pending Pending"},
		"of namespace": {ceiling.Limits{CapturesPerNamespace: 1}, "web-1 Pending Queued"},
		"of node":      {ceiling.Limits{ProbesPerNode: 1}, "web-1 Pending CeilingNode"},
	} {
		t.Run(name, func(t *testing.T) {
			k := withSecond(t)
			older := ofSecond(newCapture(func(pc *sondev1.PacketCapture) { pc.CreationTimestamp = metav1.NewTime(dawn.Add(-time.Minute)) }))
			w := newWorld(t, newCapture(), append(deployment("web-1"), older)...)
			w.r.Ceilings = tc.limits
			w.passSecond(k)
			w.settle()
			if diff := cmp.Diff([]string{tc.want}, w.entries()); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWakesOwnKind checks that an object wakes only the capture of its own kind.
func TestWakesOwnKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture())
	for name, tc := range map[string]struct {
		kind string
		want []ctrl.Request
	}{
		"this kind's":            {kind.PacketCapture.Name, []ctrl.Request{request(w.key)}},
		"another's":              {"Trace", nil},
		"whose label was edited": {"", []ctrl.Request{request(w.key)}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Name: "job", Namespace: operatorNamespace, Labels: map[string]string{sondev1.LabelUID: "u"},
				Annotations: map[string]string{sondev1.AnnotationOwner: "shop/pc"},
			}}
			if tc.kind != "" {
				job.Labels[sondev1.LabelKind] = tc.kind
			}
			if diff := cmp.Diff(tc.want, w.r.ownersOf(t.Context(), job)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}
