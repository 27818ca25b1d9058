package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Capture creates a PacketCapture and returns it when all probes are attached.
func Capture(t *testing.T, c client.Client, ns string, spec sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	t.Helper()
	pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: spec}
	if err := c.Create(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), pc) })
	AwaitCapturing(t, pc)
	return pc
}

// Trace creates a Trace and returns it when all probes are attached.
func Trace(t *testing.T, c client.Client, ns string, spec sondev1.TraceSpec) *sondev1.Trace {
	t.Helper()
	tr := &sondev1.Trace{ObjectMeta: metav1.ObjectMeta{GenerateName: "trace-", Namespace: ns}, Spec: spec}
	if err := c.Create(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), tr) })
	AwaitCapturing(t, tr)
	return tr
}

// AwaitCapturing waits until all probes of the capture are attached.
func AwaitCapturing(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	Eventually(t, 90*time.Second, "all probes attached", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		if s := capture.CaptureStatus(); !apimeta.IsStatusConditionTrue(s.Conditions, sondev1.ConditionCapturing) {
			return fmt.Errorf("phase %s, conditions %+v, pods %+v", s.Phase, s.Conditions, s.Pods)
		}
		return nil
	})
	WantEngine(t, capture)
}

// AwaitFinal waits until the capture has ended.
func AwaitFinal(t *testing.T, capture sondev1.Capture, within time.Duration) {
	t.Helper()
	Eventually(t, within, "capture ended", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		if s := capture.CaptureStatus(); !s.Phase.Final() {
			return fmt.Errorf("phase %s, pods %+v", s.Phase, s.Pods)
		}
		return nil
	})
	WantEngine(t, capture)
}

// Stop ends the capture early and waits for its end.
func Stop(t *testing.T, capture sondev1.Capture) {
	t.Helper()
	if err := Admin.Patch(t.Context(), capture, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"stop":true}}`))); err != nil {
		t.Fatal(err)
	}
	AwaitFinal(t, capture, time.Minute)
}

// Entry returns the status entry of a Pod.
func Entry(t *testing.T, capture sondev1.Capture, pod string) sondev1.PodResult {
	t.Helper()
	for _, e := range capture.CaptureStatus().Pods {
		if e.Name == pod {
			return e
		}
	}
	t.Fatalf("no entry for Pod %s in %+v", pod, capture.CaptureStatus().Pods)
	return sondev1.PodResult{}
}

// NothingLeft waits up to 30 s until the operator's namespace holds no object of the capture.
func NothingLeft(t *testing.T, uid string) {
	t.Helper()
	Eventually(t, 30*time.Second, "all objects of the capture deleted", func(ctx context.Context) error {
		for kind, list := range map[string]client.ObjectList{
			"Jobs": &batchv1.JobList{}, "Pods": &corev1.PodList{}, "ConfigMaps": &corev1.ConfigMapList{}, "Secrets": &corev1.SecretList{},
		} {
			if err := Admin.List(ctx, list, client.InNamespace(OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: uid}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if n := apimeta.LenList(list); n != 0 {
				return fmt.Errorf("%d %s are left, want none", n, kind)
			}
		}
		return nil
	})
}

// MaxStatus bounds the size of an object in bytes, well below the 1.5 MiB that etcd accepts.
const MaxStatus = 256 << 10

// CreateCapture creates a capture and does not wait for it.
func CreateCapture(t *testing.T, ns string, spec sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	t.Helper()
	pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: spec}
	if err := Admin.Create(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), pc) })
	return pc
}

// AwaitAttached waits until a probe is attached to each of the Pods.
func AwaitAttached(t *testing.T, capture sondev1.Capture, pods []corev1.Pod) {
	t.Helper()
	Eventually(t, 60*time.Second, "probes attached", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		phases := map[string]sondev1.Phase{}
		for _, e := range capture.CaptureStatus().Pods {
			phases[e.Name] = e.Phase
		}
		for i := range pods {
			if phases[pods[i].Name] != sondev1.PhaseCapturing {
				return fmt.Errorf("Pod %s is %q, want Capturing", pods[i].Name, phases[pods[i].Name])
			}
		}
		return nil
	})
}

// WantNotAdmitted fails the test unless the capture was refused for this reason, with a message.
func WantNotAdmitted(t *testing.T, pc *sondev1.PacketCapture, reason string) {
	t.Helper()
	c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionAdmitted)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || c.Message == "" {
		t.Errorf("condition Admitted = %+v, want False with reason %s and a message", c, reason)
	}
}
