package target_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/target"
)

func TestStripPod(t *testing.T) {
	now := metav1.Now()
	class := "kata"
	full := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now, CreationTimestamp: now, Labels: labels,
				Annotations:     map[string]string{"big": "annotation", sondev1.AnnotationOwner: "ns/pc", sondev1.AnnotationTargetPod: "web-1"},
				ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
				OwnerReferences: []metav1.OwnerReference{{UID: "owner"}},
			},
			Spec: corev1.PodSpec{
				NodeName: "node", HostNetwork: true, HostPID: true, RuntimeClassName: &class,
				Containers: []corev1.Container{{Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}}},
			},
			Status: corev1.PodStatus{
				Phase: corev1.PodFailed, PodIP: "10.0.0.1", StartTime: &now, Reason: "Evicted", Message: "no disk",
				ContainerStatuses: []corev1.ContainerStatus{{Name: "probe"}},
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReady}, {Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"}},
			},
		}
	}
	kept := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now, CreationTimestamp: now,
			OwnerReferences: []metav1.OwnerReference{{UID: "owner"}},
		},
		Spec:   corev1.PodSpec{NodeName: "node", HostNetwork: true, HostPID: true, RuntimeClassName: &class},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.0.0.1", StartTime: &now},
	}
	agent := *kept.DeepCopy()
	agent.Labels = map[string]string{sondev1.LabelUID: "pc", sondev1.LabelTargetPodUID: "t"}
	agent.Annotations = map[string]string{sondev1.AnnotationOwner: "ns/pc", sondev1.AnnotationTargetPod: "web-1"}
	agent.Status.Reason, agent.Status.Message = "Evicted", "no disk"
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "probe"}}
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"}}

	cases := map[string]struct {
		in, want any
	}{
		"anybody's Pod":  {full(map[string]string{"app": "web"}), &kept},
		"an agent's Pod": {full(map[string]string{"app": "web", sondev1.LabelUID: "pc", sondev1.LabelTargetPodUID: "t"}), &agent},
		"a tombstone":    {cache.DeletedFinalStateUnknown{Key: "ns/p"}, cache.DeletedFinalStateUnknown{Key: "ns/p"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := target.StripPod(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("StripPod (-want +got):\n%s", diff)
			}
			again, err := target.StripPod(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, again); diff != "" {
				t.Errorf("StripPod twice (-want +got):\n%s", diff)
			}
		})
	}
}
