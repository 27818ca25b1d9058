package target_test

import (
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

// TestParts checks that the Job and the agent of a Pod with any UID are in the same single part of the capture.
func TestParts(t *testing.T) {
	const capture = types.UID("0aeee0c1-7a6e-4a0c-9d3c-4b7a6f0c9d11")
	builder := fake.NewClientBuilder()
	for _, i := range target.Indexes {
		if i.Field == target.IndexPart {
			builder = builder.WithIndex(i.Object, i.Field, i.Extract)
		}
	}
	var pods []types.UID
	for _, last := range "0123456789abcdefZ-" {
		pods = append(pods, types.UID("5c7f5a1e-0000-4000-8000-00000000000"+string(last)))
	}
	pods = append(pods, "") // cannot happen: the operator always sets the label
	for i, pod := range pods {
		meta := metav1.ObjectMeta{Namespace: "sonde-system", Name: fmt.Sprintf("one-%d", i), Labels: map[string]string{
			sondev1.LabelUID: string(capture), sondev1.LabelTargetPodUID: string(pod),
		}}
		other := meta
		other.Name, other.Labels = "other-"+meta.Name, map[string]string{sondev1.LabelUID: "another", sondev1.LabelTargetPodUID: string(pod)}
		builder = builder.WithObjects(&batchv1.Job{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: other}, &corev1.Pod{ObjectMeta: other})
	}
	c := builder.Build()
	var jobs, agents []types.UID
	for _, part := range target.Parts(capture) {
		var inPart batchv1.JobList
		var agentsInPart corev1.PodList
		for _, list := range []client.ObjectList{&inPart, &agentsInPart} {
			if err := c.List(t.Context(), list, part); err != nil {
				t.Fatal(err)
			}
		}
		for i := range inPart.Items {
			uid := types.UID(inPart.Items[i].Labels[sondev1.LabelTargetPodUID])
			if part.(client.MatchingFields)[target.IndexPart] != target.Part(capture, uid) {
				t.Errorf("Pod %q is in part %v, Part returns %q", uid, part, target.Part(capture, uid))
			}
			jobs = append(jobs, uid)
		}
		for i := range agentsInPart.Items {
			agents = append(agents, types.UID(agentsInPart.Items[i].Labels[sondev1.LabelTargetPodUID]))
		}
		if n := len(inPart.Items); n == 0 || n > len(pods)/2 {
			t.Errorf("%d of %d are in part %v", n, len(pods), part)
		}
	}
	slices.Sort(pods)
	slices.Sort(jobs)
	slices.Sort(agents)
	if !slices.Equal(pods, jobs) || !slices.Equal(pods, agents) {
		t.Errorf("Jobs of %q and agents of %q, want each of %q once", jobs, agents, pods)
	}
}
