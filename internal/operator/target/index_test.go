package target_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
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

// TestEndedAgentsAreNotIndexed: lists by node, and of keepers that run, leave out Jobs and agents that have ended. A capture whose Pods end all
// the time keeps thousands.
func TestEndedAgentsAreNotIndexed(t *testing.T) {
	const capture = types.UID("0aeee0c1-7a6e-4a0c-9d3c-4b7a6f0c9d11")
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "sonde-system", Name: name, Annotations: map[string]string{sondev1.AnnotationTargetNode: "node-a"},
			Labels: map[string]string{sondev1.LabelUID: string(capture), sondev1.LabelTargetPodUID: "uid-" + name},
		}
	}
	agent := func(name string, phase corev1.PodPhase, keeper corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: "node-a"}, Status: corev1.PodStatus{
			Phase: phase, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Name: captureconfig.ContainerKeeper, State: keeper}},
		}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	job := func(name string, conditions ...batchv1.JobCondition) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: meta(name), Status: batchv1.JobStatus{Conditions: conditions}}
	}
	builder := fake.NewClientBuilder()
	for _, i := range target.Indexes {
		if i.Field == target.IndexNode || i.Field == target.IndexServing {
			builder = builder.WithIndex(i.Object, i.Field, i.Extract)
		}
	}
	c := builder.WithObjects(
		job("runs"), job("suspended", batchv1.JobCondition{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}),
		job("complete", batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}),
		job("failed", batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}),
		agent("runs", corev1.PodRunning, running), agent("starts", corev1.PodPending, corev1.ContainerState{}),
		agent("without-keeper", corev1.PodRunning, ended), agent("complete", corev1.PodSucceeded, ended), agent("failed", corev1.PodFailed, ended),
	).Build()
	names := func(list client.ObjectList, options ...client.ListOption) (names []string) {
		for _, which := range options {
			if err := c.List(t.Context(), list, which); err != nil {
				t.Fatal(err)
			}
			_ = apimeta.EachListItem(list, func(o runtime.Object) error {
				names = append(names, o.(client.Object).GetName())
				return nil
			})
		}
		slices.Sort(names)
		return names
	}
	node := client.MatchingFields{target.IndexNode: "node-a"}
	if got, want := names(&batchv1.JobList{}, node), []string{"runs", "suspended"}; !slices.Equal(got, want) {
		t.Errorf("Jobs of the node: %q, want %q", got, want)
	}
	if got, want := names(&corev1.PodList{}, node), []string{"runs", "starts", "without-keeper"}; !slices.Equal(got, want) {
		t.Errorf("agents of the node: %q, want %q", got, want)
	}
	if got, want := names(&corev1.PodList{}, target.ServingParts(capture)...), []string{"runs"}; !slices.Equal(got, want) {
		t.Errorf("agents whose keeper runs: %q, want %q", got, want)
	}
}

// TestNamesOfOtherGroups: other groups have kinds of the same names, whose Pods are no target's.
func TestNamesOfOtherGroups(t *testing.T) {
	owned := func(group, kind, name string) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Name: "web-0", OwnerReferences: []metav1.OwnerReference{{APIVersion: group + "/v1", Kind: kind, Name: name, Controller: new(true)}}}
	}
	for name, tc := range map[string]struct {
		pod, set *metav1.ObjectMeta
		want     sondev1.TargetKind
	}{
		"StatefulSet":             {owned("apps", "StatefulSet", "web"), nil, sondev1.TargetStatefulSet},
		"StatefulSet of a vendor": {owned("apps.kruise.io", "StatefulSet", "web"), nil, ""},
		"Deployment":              {owned("apps", "ReplicaSet", "web-1"), owned("apps", "Deployment", "web"), sondev1.TargetDeployment},
		"Deployment of a vendor":  {owned("apps", "ReplicaSet", "web-1"), owned("vendor.example", "Deployment", "web"), ""},
		"ReplicaSet of a vendor":  {owned("vendor.example", "ReplicaSet", "web-1"), owned("apps", "Deployment", "web"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			sets := func(context.Context, client.ObjectKey) (*metav1.PartialObjectMetadata, error) {
				return &metav1.PartialObjectMetadata{ObjectMeta: *tc.set}, nil
			}
			got, err := target.Names(t.Context(), sets, "shop", tc.pod)
			want := []sondev1.TargetReference{{Kind: sondev1.TargetPod, Name: "web-0"}}
			if tc.want != "" {
				want = append(want, sondev1.TargetReference{Kind: tc.want, Name: "web"})
			}
			if !slices.Equal(got, want) || err != nil {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		})
	}
}
