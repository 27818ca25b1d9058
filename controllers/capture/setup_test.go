package capture

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

func request(key types.NamespacedName) ctrl.Request { return ctrl.Request{NamespacedName: key} }

func TestWakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newCapture(), deployment("web-1")...)
	wake := w.r.capturesOf(target.Wakes{Kind: kind.PacketCapture, Reader: w.client})
	agent := func(namespace, owner string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "agent", Namespace: namespace,
			Labels: map[string]string{sondev1.LabelUID: "u"}, Annotations: map[string]string{sondev1.AnnotationOwner: owner},
		}}
	}
	cases := map[string]struct {
		pod  *corev1.Pod
		want []ctrl.Request
	}{
		"an agent's Pod":                     {agent(operatorNamespace, "other/capture"), []ctrl.Request{request(types.NamespacedName{Namespace: "other", Name: "capture"})}},
		"an agent's Pod without an owner":    {agent(operatorNamespace, "nonsense"), nil},
		"a Pod that claims to be an agent's": {agent("shop", "other/capture"), nil},
		"a target's Pod":                     {webPod("web-1"), []ctrl.Request{request(w.key)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, wake(t.Context(), tc.pod)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPodChanged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"only its version": {func(p *corev1.Pod) { p.ResourceVersion = "8" }, false},
		"its phase":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"its node":         {func(p *corev1.Pod) { p.Spec.NodeName = "x" }, true},
		"its deletion":     {func(p *corev1.Pod) { now := metav1.NewTime(dawn); p.DeletionTimestamp = &now }, true},
		"its containers":   {func(p *corev1.Pod) { p.Status.ContainerStatuses = make([]corev1.ContainerStatus, 1) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := webPod("web-1")
			tc.change(now)
			if got := slim.PodChanged(event.UpdateEvent{ObjectOld: slim.FromPod(webPod("web-1")), ObjectNew: slim.FromPod(now)}); got != tc.want {
				t.Errorf("slim.PodChanged = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestIdentityChanged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(client.Object)
		want   bool
	}{
		"only its version": {func(o client.Object) { o.SetResourceVersion("8"); o.SetGeneration(9) }, false},
		"another label":    {func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, false},
		"the hub label":    {func(o client.Object) { o.SetLabels(map[string]string{sondev1.LabelHub: "true"}) }, true},
		"its owner":        {func(o client.Object) { o.SetOwnerReferences(owned("Deployment", "x", "x")) }, true},
		"its UID":          {func(o client.Object) { o.SetUID("x") }, true},
		"its deletion":     {func(o client.Object) { now := metav1.NewTime(dawn); o.SetDeletionTimestamp(&now) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := coreMetadata("Namespace")
			tc.change(now)
			if got := identityChanged(event.UpdateEvent{ObjectOld: coreMetadata("Namespace"), ObjectNew: now}); got != tc.want {
				t.Errorf("identityChanged = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestCacheOptions checks that the cache holds only labelled Jobs, ConfigMaps and Secrets, of the operator's namespace.
func TestCacheOptions(t *testing.T) {
	t.Parallel()
	o, err := CacheOptions(operatorNamespace)
	if err != nil {
		t.Fatal(err)
	}
	capture := &sondev1.PacketCapture{}
	capture.Annotations = map[string]string{"big": "annotation"}
	if _, err := o.DefaultTransform(capture); err != nil || len(capture.Annotations) != 0 {
		t.Errorf("user annotations are kept: %v, %v", capture.Annotations, err)
	}
	observed := 0
	for object, options := range o.ByObject {
		switch object.(type) {
		case *corev1.Pod:
			if options.Transform == nil {
				t.Error("whole Pods are kept")
			}
		case *batchv1.Job, *corev1.ConfigMap, *corev1.Secret:
			observed++
			config, ok := options.Namespaces[operatorNamespace]
			if !ok || len(options.Namespaces) != 1 || config.LabelSelector.Matches(labels.Set{}) || !config.LabelSelector.Matches(labels.Set{sondev1.LabelUID: "u"}) {
				t.Errorf("%T is cached without the label", object)
			}
		}
	}
	if observed != 3 {
		t.Errorf("%d of 3 kinds are bounded", observed)
	}
}
