package capture

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// withContainers gives a Pod containers of these names, and an init container.
func withContainers(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name})
		}
		p.Spec.InitContainers = []corev1.Container{{Name: "setup"}}
	}
}

// TestTraceOfContainers checks that a Pod gets a Job if it has one of the named containers. Its entry lists the missing ones.
// A Pod with none of them gets a message that lists its containers. Jobs and configuration carry the names.
func TestTraceOfContainers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		containers []string
		pods       []client.Object
		want       []string // entries
		jobs       []string
		notFound   []string // of the last Pod
		message    string   // of the last Pod
		phase      sondev1.Phase
	}{
		"all exist": {
			containers: []string{"setup", "web"}, pods: []client.Object{webPod("web-1", withContainers("web", "log"))},
			want: []string{"web-1 Pending Pending"}, jobs: []string{"web-1-trce"}, phase: sondev1.PhasePending,
		},
		"one is missing": {
			containers: []string{"proxy", "web"}, pods: []client.Object{webPod("web-1", withContainers("web"))},
			want: []string{"web-1 Pending Pending"}, jobs: []string{"web-1-trce"}, notFound: []string{"proxy"}, phase: sondev1.PhasePending,
		},
		"all are missing": {
			containers: []string{"proxy", "debugger"}, pods: []client.Object{webPod("web-1", withContainers("web", "log"))},
			want: []string{"web-1 Failed ContainerNotFound"}, notFound: []string{"proxy", "debugger"}, message: "it has web, log, setup (init)",
			phase: sondev1.PhaseFailed,
		},
		"all are missing in one Pod": {
			containers: []string{"log"}, pods: []client.Object{webPod("web-1", withContainers("web", "log")), webPod("web-2", withContainers("web"))},
			want: []string{"web-1 Pending Pending", "web-2 Failed ContainerNotFound"}, jobs: []string{"web-1-trce"}, notFound: []string{"log"},
			message: "it has web, setup (init)", phase: sondev1.PhasePending,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTraceWorld(t, func(tr *sondev1.Trace) { tr.Spec.Containers, tr.Spec.Command = tc.containers, "nginx" }, append(deployment(), tc.pods...)...)
			w.settle()
			status := w.trace().Status
			got := entries(status)
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.jobs, w.jobNames()); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			for _, j := range w.jobs() {
				if a := j.Annotations; a[sondev1.AnnotationTargetContainer] != strings.Join(tc.containers, ",") || a[sondev1.AnnotationTargetCommand] != "nginx" {
					t.Errorf("job %s: annotations %v", j.Name, a)
				}
			}
			last := slices.MaxFunc(status.Pods, func(a, b sondev1.PodResult) int { return strings.Compare(a.Name, b.Name) })
			if diff := cmp.Diff(tc.notFound, last.ContainersNotFound); diff != "" || !strings.Contains(last.Message, tc.message) {
				t.Errorf("message %q, want %q in it; not found (-want +got):\n%s", last.Message, tc.message, diff)
			}
			if status.Phase != tc.phase {
				t.Errorf("phase %s, want %s", status.Phase, tc.phase)
			}
			if sent := w.sent(); strings.Contains(sent, sondev1.ReasonContainerNotFound) != (tc.message != "") {
				t.Errorf("events:\n%s", sent)
			}
		})
	}
}

// TestMissingContainersOfAnUnwrittenStatus: the write after the creation of a Job fails, and the next pass finds the Job.
func TestMissingContainersOfAnUnwrittenStatus(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t, func(tr *sondev1.Trace) { tr.Spec.Containers = []string{"proxy", "web"} }, append(deployment(), webPod("web-1", withContainers("web")))...)
	lost := false
	w.r.Client = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if len(w.jobNames()) > 0 && !lost {
				lost = true
				return errors.New("the API server is away")
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	for !lost {
		_, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key})
		if (err != nil) != lost {
			t.Fatalf("error %v; a write has failed: %t", err, lost)
		}
	}
	w.settle()
	if diff := cmp.Diff([]string{"proxy"}, w.trace().Status.Pods[0].ContainersNotFound); diff != "" {
		t.Errorf("not found (-want +got):\n%s", diff)
	}
}

// TestContainersUnreadable checks that no Job is created while the Pod's containers are unknown.
func TestContainersUnreadable(t *testing.T) {
	t.Parallel()
	w := newTraceWorld(t, func(tr *sondev1.Trace) { tr.Spec.Containers = []string{"web"} }, append(deployment(), webPod("web-1", withContainers("web")))...)
	broken := true
	w.r.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, pod := o.(*corev1.Pod); pod && broken {
				return errors.New("the API server is away")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	for range 2 {
		if _, err := w.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: w.key}); err == nil || !strings.Contains(err.Error(), "the API server is away") {
			t.Fatalf("error %v", err)
		}
	}
	if jobs := w.jobNames(); len(jobs) > 0 {
		t.Fatalf("jobs %v", jobs)
	}
	broken = false
	w.settle()
	if diff := cmp.Diff([]string{"web-1-trce"}, w.jobNames()); diff != "" {
		t.Errorf("jobs (-want +got):\n%s", diff)
	}
}
