package capture

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// TestEndedCaptureIsReadWhole checks that a pass over a capture that has ended changes only what it means to, although the cache
// keeps little of it. Without anything left to do, it does not read the capture from the API server.
func TestEndedCaptureIsReadWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1", "web-2")...)
	reads := 0
	w.r.Live = interceptor.NewClient(w.r.Live.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*sondev1.PacketCapture); ok {
				reads++
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.settle()
	w.agents(w.attach)
	w.settle()
	w.clock.Step(31 * time.Second)
	w.agents(w.end(done(sondev1.ReasonDuration)))
	w.settle()

	want := w.capture().Status
	w.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1-qwer-x", Namespace: operatorNamespace}})
	w.settle()
	want.Pods[0].Files, want.Pods[0].AvailableUntil = nil, nil
	want.Pods[0].Message = "the file is no longer available: the agent's Pod ended before the retention time was over"
	if diff := cmp.Diff(want, w.capture().Status); diff != "" {
		t.Errorf("after one file was lost (-want +got):\n%s", diff)
	}

	w.clock.Step(time.Hour)
	w.settle()
	reads = 0
	w.pass()
	if reads > 0 {
		t.Errorf("%d reads of a capture with nothing left to do", reads)
	}
	if diff := cmp.Diff(want, w.capture().Status); diff != "" {
		t.Errorf("after the retention (-want +got):\n%s", diff)
	}
	pc := w.capture()
	pc.Spec.Stop, pc.Generation = true, 2
	w.update(pc)
	w.settle()
	if got := w.capture().Status; got.ObservedGeneration != 2 || len(got.Pods) != 2 {
		t.Errorf("after a change of the spec: status %+v", got)
	}
}
