package slim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/slim"
)

var (
	_ client.Object = &slim.Pod{}
	_ client.Object = &slim.Job{}

	dawn = metav1.Unix(1767323045, 0)
	noon = metav1.Unix(1767356000, 0)
)

func meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "uid-web-1", ResourceVersion: "7", CreationTimestamp: dawn, DeletionTimestamp: &noon,
		Labels:          map[string]string{sondev1.LabelUID: "capture", sondev1.LabelTargetPodUID: "target", sondev1.LabelKeeperUser: "2001000007"},
		Annotations:     map[string]string{sondev1.AnnotationOwner: "shop/web", sondev1.AnnotationTargetPod: "web-1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-web", Controller: new(true), BlockOwnerDeletion: new(true)}},
	}
}

func agent() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta(),
		Spec: corev1.PodSpec{NodeName: "node-a", HostNetwork: true, HostPID: true, RuntimeClassName: new("kata"), Containers: []corev1.Container{{
			Name: "keeper", RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}},
		}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.1.1.1", StartTime: &dawn, Reason: "Evicted", Message: "no disk",
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no room"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "probe", RestartCount: 1, Started: new(false), State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: 137, Signal: 9, Reason: "OOMKilled", Message: `{"v":1}`, StartedAt: dawn, FinishedAt: noon,
				}}},
				{Name: "keeper", Ready: true, Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: dawn}}, LastTerminationState: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{FinishedAt: noon},
				}},
				{Name: "waits", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no image"}}},
			},
		},
	}
}

func gated(said string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Labels: map[string]string{sondev1.LabelTraceRequired: "true"}, Annotations: map[string]string{sondev1.AnnotationGatedByUID: "t1"},
		},
		Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "sonde-gate", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: said, StartedAt: dawn, FinishedAt: noon, ContainerID: "containerd://c0ffee"}},
		}}},
	}
}

// TestCopyIsComplete: the cache hands out objects equal to those that it got.
func TestCopyIsComplete(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: meta(), Status: batchv1.JobStatus{Active: 1, Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded, Message: "too long", LastTransitionTime: dawn},
	}}}
	odd := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{sondev1.LabelKeeperUser: "007"}}}
	for name, tc := range map[string]struct {
		in   client.Object
		kept client.Object
	}{
		"an agent's Pod": {agent(), slim.FromPod(agent())},
		"another's Pod": {
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: "o", Controller: new(true), BlockOwnerDeletion: new(false)}}}},
			slim.FromPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{UID: "o", Controller: new(true), BlockOwnerDeletion: new(false)}}}}),
		},
		"a Job":                   {job, slim.FromJob(job)},
		"an empty Job":            {&batchv1.Job{}, slim.FromJob(&batchv1.Job{})},
		"a label that is no user": {odd, slim.FromPod(odd)},
		"a gated Pod":             {gated("Opened"), slim.FromPod(gated("Opened"))},
		"an empty Pod":            {&corev1.Pod{}, slim.FromPod(&corev1.Pod{})},
		"of two owners":           {&corev1.Pod{}, slim.FromPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "o"}}}})},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.in, tc.kept.DeepCopyObject()); diff != "" {
				t.Errorf("copy (-want +got):\n%s", diff)
			}
			if tc.kept.GetName() != tc.in.GetName() || tc.kept.GetNamespace() != tc.in.GetNamespace() || tc.kept.GetUID() != tc.in.GetUID() {
				t.Errorf("the kept one is %s/%s %s", tc.kept.GetNamespace(), tc.kept.GetName(), tc.kept.GetUID())
			}
		})
	}
}

// TestParts: the getters of the slim form agree with the object.
func TestParts(t *testing.T) {
	pod := agent()
	kept := slim.FromPod(pod)
	if kept.IP() != pod.Status.PodIP || kept.Node() != pod.Spec.NodeName {
		t.Errorf("IP %q on %q", kept.IP(), kept.Node())
	}
	want := pod.Spec
	want.Containers = nil
	if diff := cmp.Diff(want, kept.Spec()); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if got := kept.Target(); got != (slim.Target{UID: "target", Name: "web-1"}) {
		t.Errorf("the agent's target is %+v", got)
	}
	m := meta()
	m.Annotations[sondev1.AnnotationTargetNode] = "node-a"
	if got := slim.FromJob(&batchv1.Job{ObjectMeta: m}).Target(); got != (slim.Target{UID: "target", Name: "web-1", Node: "node-a"}) {
		t.Errorf("the Job's target is %+v", got)
	}
	if got := slim.FromPod(&corev1.Pod{}).Target(); got != (slim.Target{}) {
		t.Errorf("a Pod that is not an agent's has target %+v", got)
	}
}

// TestSame: every change except of the resourceVersion counts.
func TestSame(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"nothing":       {func(*corev1.Pod) {}, true},
		"the version":   {func(p *corev1.Pod) { p.ResourceVersion = "8" }, true},
		"the node":      {func(p *corev1.Pod) { p.Spec.NodeName = "node-b" }, false},
		"the phase":     {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		"the user":      {func(p *corev1.Pod) { p.Labels[sondev1.LabelKeeperUser] = "2001000008" }, false},
		"a label":       {func(p *corev1.Pod) { p.Labels[sondev1.LabelUID] = "another" }, false},
		"an annotation": {func(p *corev1.Pod) { delete(p.Annotations, sondev1.AnnotationOwner) }, false},
		"the owner":     {func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"the deletion":  {func(p *corev1.Pod) { p.DeletionTimestamp = nil }, false},
		"an account":    {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Terminated.Message = "" }, false},
		"a container":   {func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1] }, false},
		"why it waits":  {func(p *corev1.Pod) { p.Status.Conditions[0].Message = "no memory" }, false},
		"it has a node": {func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		"the eviction":  {func(p *corev1.Pod) { p.Status.Message = "no memory" }, false},
		"no agent's": {func(p *corev1.Pod) {
			p.Spec.Containers, p.Status.Reason, p.Status.Message, p.Status.ContainerStatuses, p.Status.Conditions = nil, "", "", nil, nil
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := agent()
			tc.change(p)
			if got := slim.FromPod(p).Equal(slim.FromPod(agent())); got != tc.want {
				t.Errorf("same is %t, want %t", got, tc.want)
			}
		})
	}
	if open := slim.FromPod(gated("Opened")); !open.Equal(slim.FromPod(gated("Opened"))) || open.Equal(slim.FromPod(gated("Over"))) || open.Equal(slim.FromPod(&corev1.Pod{})) {
		t.Error("gated Pods are compared wrongly")
	}
	job := func(active int32, conditions ...batchv1.JobCondition) *slim.Job {
		return slim.FromJob(&batchv1.Job{ObjectMeta: meta(), Status: batchv1.JobStatus{Active: active, Conditions: conditions}})
	}
	complete := batchv1.JobCondition{Type: batchv1.JobComplete}
	if !job(1, complete).Equal(job(1, complete)) || job(1).Equal(job(0)) || job(1).Equal(job(1, complete)) {
		t.Error("Jobs are compared wrongly")
	}
	if !job(1).Equal(job(1, batchv1.JobCondition{Type: batchv1.JobSuspended})) {
		t.Error("an unused condition counts as a change")
	}
}

// TestNothingIsChanged: setters do not change a cached object.
func TestNothingIsChanged(t *testing.T) {
	kept := slim.FromPod(agent())
	kept.SetName("x")
	kept.SetNamespace("x")
	kept.SetUID("x")
	kept.SetLabels(nil)
	kept.SetAnnotations(nil)
	kept.SetResourceVersion("x")
	kept.SetDeletionTimestamp(nil)
	kept.SetOwnerReferences(nil)
	kept.SetCreationTimestamp(metav1.NewTime(time.Now()))
	if diff := cmp.Diff(agent(), kept.Expand()); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}
