package gate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestResources checks that the gate does not change the Pod's QoS class, and that a LimitRange that admits the Pod's
// containers admits the gate.
func TestResources(t *testing.T) {
	memory := func(request, limit string) corev1.ResourceRequirements {
		var r corev1.ResourceRequirements
		if request != "" {
			r.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)}
		}
		if limit != "" {
			r.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit)}
		}
		return r
	}
	tests := map[string]struct {
		containers []corev1.ResourceRequirements
		ofPod      bool
		want       corev1.ResourceRequirements
	}{
		"best effort":          {containers: []corev1.ResourceRequirements{{}, {}}},
		"largest limit":        {containers: []corev1.ResourceRequirements{memory("1Gi", "1Gi"), memory("1Mi", "2Gi"), memory("", "1Mi")}, want: memory("1Mi", "2Gi")},
		"no limit":             {containers: []corev1.ResourceRequirements{memory("1Gi", "1Gi"), memory("1Mi", ""), memory("", "2Gi")}, want: memory("1Mi", "")},
		"too small":            {containers: []corev1.ResourceRequirements{memory("1Mi", "2Mi")}, want: memory("1Mi", "16Mi")},
		"too small, equal":     {containers: []corev1.ResourceRequirements{memory("2Mi", "2Mi")}, want: memory("16Mi", "16Mi")},
		"too small, Pod level": {containers: []corev1.ResourceRequirements{memory("2Mi", "2Mi")}, ofPod: true, want: memory("2Mi", "2Mi")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			spec := &corev1.PodSpec{}
			for _, r := range tc.containers {
				spec.Containers = append(spec.Containers, corev1.Container{Resources: r})
			}
			if tc.ofPod {
				spec.Resources = &corev1.ResourceRequirements{}
			}
			if diff := cmp.Diff(tc.want, resources(spec)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
