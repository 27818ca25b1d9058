package target_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/pass"
	"github.com/sonde-operator/sonde/internal/operator/slim"
	"github.com/sonde-operator/sonde/internal/operator/target"
)

func TestStripAgent(t *testing.T) {
	now := metav1.Now()
	class := "kata"
	full := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "p", Namespace: "ns", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now, CreationTimestamp: now, Labels: labels,
				Annotations:     map[string]string{"big": "annotation", sondev1.AnnotationOwner: "ns/pc", sondev1.AnnotationTargetPod: "web-1"},
				ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
				OwnerReferences: []metav1.OwnerReference{{UID: "another"}, {UID: "owner", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{
				NodeName: "node", HostNetwork: true, HostPID: true, RuntimeClassName: &class,
				Containers: []corev1.Container{
					{Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "secret"}}},
					{Name: "keeper", Image: "i", RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}},
				},
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
			OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node", HostNetwork: true, HostPID: true, RuntimeClassName: &class},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.0.0.1", StartTime: &now},
	}
	agent := *kept.DeepCopy()
	agent.Labels = map[string]string{sondev1.LabelUID: "pc", sondev1.LabelTargetPodUID: "t"}
	agent.Annotations = map[string]string{sondev1.AnnotationOwner: "ns/pc", sondev1.AnnotationTargetPod: "web-1"}
	agent.Spec.Containers = []corev1.Container{{Name: "keeper", RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}}}}
	agent.Status.Reason, agent.Status.Message = "Evicted", "no disk"
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "probe"}}
	agent.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"}}

	long := strings.Repeat("é", 2000)
	gated := full(map[string]string{"app": "web", sondev1.LabelTraceRequired: "true"})
	gated.Annotations[sondev1.AnnotationGatedByUID], gated.Annotations[sondev1.AnnotationGatedBy] = "t1", "ns/t"
	gated.Status.InitContainerStatuses = []corev1.ContainerStatus{
		{Name: "istio-init", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{
			Name: "sonde-gate", Image: "i", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 75, Message: long}},
		},
	}
	keptGated := *kept.DeepCopy()
	keptGated.Labels = map[string]string{sondev1.LabelTraceRequired: "true"}
	keptGated.Annotations = map[string]string{sondev1.AnnotationGatedByUID: "t1"}
	keptGated.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "sonde-gate", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 75, Message: long[:512]}},
	}}
	liar := full(map[string]string{"app": "web", sondev1.LabelTraceRequired: "true"})
	liar.Annotations[sondev1.AnnotationGatedByUID] = long
	liar.Status.InitContainerStatuses = gated.Status.InitContainerStatuses

	keptAgentGated := *agent.DeepCopy()
	keptAgentGated.Labels[sondev1.LabelTraceRequired] = "true"
	keptAgentGated.Annotations[sondev1.AnnotationGatedByUID] = "t1"
	keptAgentGated.Status.InitContainerStatuses = keptGated.Status.InitContainerStatuses
	agentGated := gated.DeepCopy()
	maps.Copy(agentGated.Labels, agent.Labels)

	// A Native sidecar is an init container. No init container counts as one that runs.
	runs, ended := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	last := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "a text", FinishedAt: metav1.Unix(7, 0)}}
	keptLast := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Unix(7, 0)}}
	withClaim := full(map[string]string{"app": "web"})
	withClaim.Annotations[sondev1.AnnotationClaim], withClaim.Status.Phase = "logs/c/mac", corev1.PodRunning
	withClaim.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "i", State: runs}}
	withClaim.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "sidecar", RestartCount: 2, State: runs, LastTerminationState: last}, {Name: "mesh", State: runs}, {Name: "setup", State: ended}}
	keptClaim := *kept.DeepCopy()
	keptClaim.Annotations, keptClaim.Status.Phase = map[string]string{sondev1.AnnotationClaim: "logs/c/mac"}, corev1.PodRunning
	keptClaim.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: runs}, {Name: "sidecar", RestartCount: 2, LastTerminationState: keptLast}, {Name: "setup", State: ended}}

	endedClaim, keptEnded := withClaim.DeepCopy(), *keptClaim.DeepCopy()
	endedClaim.Status.Phase, keptEnded.Status.Phase, keptEnded.Status.ContainerStatuses = corev1.PodFailed, corev1.PodFailed, nil

	cases := map[string]struct {
		in, want *corev1.Pod
	}{
		"a Pod with a claim that has ended": {endedClaim, &keptEnded},

		"a Pod with a claim":  {withClaim, &keptClaim},
		"a gated agent's Pod": {agentGated, &keptAgentGated},
		"a gated Pod":         {gated, &keptGated},
		"gated by a long UID": {liar, &kept},
		"an ordinary Pod":     {full(map[string]string{"app": "web"}), &kept},
		"an agent's Pod":      {full(map[string]string{"app": "web", sondev1.LabelUID: "pc", sondev1.LabelTargetPodUID: "t"}), &agent},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := target.StripAgent(tc.in)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("StripAgent (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, target.StripAgent(got)); diff != "" {
				t.Errorf("StripAgent twice (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatesOfManyContainers: any user may give a Pod the annotation of a claim. A sidecar that has ended while another container runs
// shows in what is kept, in whatever order the containers are.
func TestStatesOfManyContainers(t *testing.T) {
	states := map[byte]corev1.ContainerStatus{
		'w': {State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}},
		'r': {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		'o': {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1, 0)}}},
		'n': {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(2, 0)}}},
		'a': {State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, RestartCount: 1},
		'e': {State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}
	for containers, want := range map[string]string{
		"wrwrwrwe": "rre", "errr": "err", "aaaa": "aaaa", "rrra": "rra", "www": "", "nnoe": "noe", "noone": "ooe",
		strings.Repeat("w", 4000) + "re":       "re",
		strings.Repeat("r", 4000) + "e":        "rre",
		"r" + strings.Repeat("e", 4000) + "r":  "r" + strings.Repeat("e", 63),
		strings.Repeat("rwe", 2000) + "rrrrrr": "rere" + strings.Repeat("e", 60),
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{sondev1.AnnotationClaim: "x"}}}
		for i := range len(containers) {
			state := states[containers[i]]
			state.Name, state.LastTerminationState = string(containers[i]), corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Unix(7, 0)}}
			pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, state)
		}
		got := ""
		for _, c := range target.SlimPod(pod).Expand().Status.ContainerStatuses {
			got += c.Name
			if runs := c.State.Running != nil; c.LastTerminationState.Terminated.FinishedAt.Unix() != 7 || runs != slices.Contains([]string{"r", "o", "n", "a"}, c.Name) {
				t.Errorf("%+v", c)
			}
		}
		if got != want {
			t.Errorf("of %.20s %s is kept, want %s", containers, got, want)
		}
	}
}

// TestLongRetriesWake: the cache shows each request for another attempt of a Collector, however long the annotation is, and keeps little of it.
func TestLongRetriesWake(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	request := func(annotations map[string]string) (cached map[string]string) {
		c := &sondev1.Collector{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		want := pass.RetryRequested(annotations)
		if _, err := target.Strip(c); err != nil {
			t.Fatal(err)
		}
		if got := pass.RetryRequested(c.Annotations); got != want {
			t.Errorf("the cache has the request %.20q, want %.20q", got, want)
		}
		if n := len(c.Annotations[sondev1.AnnotationRetry]); n > 512 {
			t.Errorf("the cache keeps %d bytes", n)
		}
		return c.Annotations
	}
	seen := []map[string]string{request(nil)}
	for _, value := range []string{"", "now", "1" + long, "2" + long, "é" + long, strings.Repeat("é", 300)} {
		annotations := request(map[string]string{sondev1.AnnotationRetry: value})
		for _, earlier := range seen {
			if maps.Equal(earlier, annotations) {
				t.Errorf("the cache does not show the request %.20q", value)
			}
		}
		seen = append(seen, annotations)
	}
}

// TestStripForgetsWhatUsersWrite checks that the cache keeps only a few hundred bytes of an object whose metadata a user
// fills, and all that the operator reads.
func TestStripForgetsWhatUsersWrite(t *testing.T) {
	big := strings.Repeat("x", 200<<10)
	written := metav1.ObjectMeta{
		Name: "o", Namespace: "ns", UID: "u", ResourceVersion: "7", GenerateName: "o",
		Labels: map[string]string{"app": "web", sondev1.LabelHub: "true", sondev1.LabelOptOut: "true", sondev1.LabelUID: "pc", sondev1.LabelAppInstance: "mine"},
		Annotations: map[string]string{
			"big": big, sondev1.AnnotationOwner: big, sondev1.AnnotationTargetPod: big,
			sondev1.AnnotationRequester: "claim", sondev1.AnnotationStamp: "mac", sondev1.AnnotationStoppedBy: big,
		},
		Finalizers:      []string{"example.org/" + big},
		OwnerReferences: []metav1.OwnerReference{{UID: "another", Name: big}, {UID: "owner", Controller: new(true)}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: big}},
	}
	owner := []metav1.OwnerReference{{UID: "owner", Controller: new(true)}}
	stamped := map[string]string{sondev1.AnnotationRequester: "claim", sondev1.AnnotationStamp: "mac"}
	meta := func(labels, annotations map[string]string, owners []metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "o", Namespace: "ns", UID: "u", ResourceVersion: "7", Labels: labels, Annotations: annotations, OwnerReferences: owners}
	}
	spec := sondev1.PacketCaptureSpec{TargetDeployment: "web"}
	ours := map[string]string{sondev1.LabelAppInstance: "mine"}
	named := func(m metav1.ObjectMeta) metav1.ObjectMeta { m.GenerateName = "o"; return m }
	deleted := func(m metav1.ObjectMeta) metav1.ObjectMeta { m.DeletionTimestamp = new(metav1.Unix(7, 0)); return m }
	cases := map[string]struct{ in, want any }{
		"a workload": {
			&metav1.PartialObjectMetadata{ObjectMeta: *written.DeepCopy()},
			&metav1.PartialObjectMetadata{ObjectMeta: meta(map[string]string{sondev1.LabelHub: "true", sondev1.LabelOptOut: "true", sondev1.LabelUID: "pc"}, map[string]string{}, owner)},
		},
		"a Pod that looks like an agent's": {
			&corev1.Pod{ObjectMeta: *written.DeepCopy()},
			&corev1.Pod{ObjectMeta: meta(nil, nil, owner)},
		},
		"a capture": {
			&sondev1.PacketCapture{ObjectMeta: *written.DeepCopy(), Spec: spec},
			&sondev1.PacketCapture{ObjectMeta: named(meta(ours, stamped, nil)), Spec: spec},
		},
		"a capture that a finalizer keeps": {
			&sondev1.PacketCapture{ObjectMeta: deleted(*written.DeepCopy()), Spec: spec, Status: sondev1.CaptureStatus{
				Phase: sondev1.PhaseCapturing, Pods: []sondev1.PodResult{{Name: big}},
			}},
			&sondev1.PacketCapture{ObjectMeta: deleted(named(meta(ours, stamped, nil))), Spec: spec, Status: sondev1.CaptureStatus{Phase: sondev1.PhaseCapturing}},
		},
		"an intercept that has ended": {
			&sondev1.InterceptRequest{ObjectMeta: *written.DeepCopy(), Spec: sondev1.InterceptRequestSpec{ClientKey: big}, Status: sondev1.InterceptRequestStatus{Phase: sondev1.InterceptEnded, Pods: []sondev1.InterceptPod{{Name: big}}}},
			&sondev1.InterceptRequest{ObjectMeta: named(meta(ours, stamped, nil)), Status: sondev1.InterceptRequestStatus{Phase: sondev1.InterceptEnded}},
		},
		"an intercept that a finalizer keeps": {
			&sondev1.InterceptRequest{ObjectMeta: deleted(*written.DeepCopy()), Spec: sondev1.InterceptRequestSpec{ClientKey: big}, Status: sondev1.InterceptRequestStatus{Phase: sondev1.InterceptActive, Pods: []sondev1.InterceptPod{{Name: big}}}},
			&sondev1.InterceptRequest{ObjectMeta: deleted(named(meta(ours, stamped, nil))), Status: sondev1.InterceptRequestStatus{Phase: sondev1.InterceptActive}},
		},
		"a Collector": {
			&sondev1.Collector{
				ObjectMeta: *written.DeepCopy(),
				Spec: sondev1.CollectorSpec{
					Collector: sondev1.CollectorRelease{Name: "c", Configuration: big}, Tenant: sondev1.CollectorTenant{Reference: "SHOP"},
					Values: &runtime.RawExtension{Raw: []byte(`"` + big + `"`)},
				},
				Status: sondev1.CollectorStatus{Job: "j", Conditions: []metav1.Condition{{Type: sondev1.ConditionReady, Message: big}}, History: []sondev1.CollectorRevision{{ChartVersion: big}}},
			},
			&sondev1.Collector{
				ObjectMeta: named(meta(nil, map[string]string{sondev1.AnnotationStamp: "mac"}, nil)),
				Spec:       sondev1.CollectorSpec{Collector: sondev1.CollectorRelease{Name: "c"}, Tenant: sondev1.CollectorTenant{Reference: "SHOP"}},
				Status:     sondev1.CollectorStatus{Job: "j", Conditions: []metav1.Condition{{Type: sondev1.ConditionReady}}},
			},
		},
		"a token": {
			&sondev1.ResultAccess{ObjectMeta: *written.DeepCopy()},
			&sondev1.ResultAccess{ObjectMeta: named(meta(ours, stamped, nil))},
		},
		"a very long owner": {
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Name: big, Controller: new(true)}}}},
			&metav1.PartialObjectMetadata{},
		},
		"only the operator's own metadata": {
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o", Annotations: stamped, ManagedFields: written.ManagedFields}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "o", Annotations: stamped}},
		},
		"a tombstone": {cache.DeletedFinalStateUnknown{Key: "ns/p"}, cache.DeletedFinalStateUnknown{Key: "ns/p"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := target.Strip(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Strip (-want +got):\n%s", diff)
			}
			if b, err := json.Marshal(got); err != nil || len(b) > 4<<10 {
				t.Errorf("%d bytes are kept (%v)", len(b), err)
			}
		})
	}
}

// TestStripBoundsClaims checks that the cache keeps the first eight claims of a Pod that may be of FluentPVCs, whatever else it mounts.
func TestStripBoundsClaims(t *testing.T) {
	volumes := func(n int, name func(int) string) []corev1.Volume {
		made := make([]corev1.Volume, n)
		for i := range made {
			made[i] = corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name(i)}}}
		}
		return made
	}
	// A name like those of the webhook: FluentPVC, hash, 10 random characters.
	like := func(i int) string {
		return fmt.Sprintf("logs-01234567-%s%c%c%c", "abcdefg", 'a'+i/676%26, 'a'+i/26%26, 'a'+i%26)
	}
	for name, tc := range map[string]struct {
		volumes []corev1.Volume
		want    int // the first so many of like
	}{
		"one":                   {volumes(1, like), 1},
		"eight":                 {volumes(8, like), 8},
		"thousands":             {volumes(5000, like), 8},
		"thousands of others":   {volumes(5000, func(i int) string { return fmt.Sprint("data-web-", i) }), 0},
		"others first":          {append(volumes(5000, func(i int) string { return fmt.Sprint("data-web-", i) }), volumes(1, like)...), 1},
		"long names":            {volumes(1000, func(i int) string { return strings.Repeat("x", 200) + like(i) }), 0},
		"no claims, but a name": {[]corev1.Volume{{Name: like(0)}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: corev1.PodSpec{Volumes: tc.volumes}}
			kept, err := target.Slim("sonde-system")(pod)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := range tc.want {
				want = append(want, like(i))
			}
			if diff := cmp.Diff(want, kept.(*slim.Pod).Claims()); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSlim checks the slim forms of Pods and Jobs. Only Pods of a workload, or with a claim, keep their owner.
func TestSlim(t *testing.T) {
	owned := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "p", OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "owner", Controller: new(true)}}}
	}
	claiming := &corev1.Pod{ObjectMeta: owned("Job")}
	claiming.Annotations = map[string]string{sondev1.AnnotationClaim: "x"}
	labelled := func(namespace string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: namespace, Labels: map[string]string{sondev1.LabelUID: "pc"}},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "probe"}}},
		}
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "node"}}
	for name, tc := range map[string]struct {
		in   runtime.Object
		want runtime.Object
	}{
		"a workload's Pod": {&corev1.Pod{ObjectMeta: owned("ReplicaSet")}, &corev1.Pod{ObjectMeta: owned("ReplicaSet")}},
		"an agent's Pod":   {labelled("sonde-system"), labelled("sonde-system")},
		"a forged agent's": {labelled("shop"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop"}}},
		"a Job's Pod":      {&corev1.Pod{ObjectMeta: owned("Job")}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}},
		"one with a claim": {claiming, claiming},
		"a Job":            {&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", Labels: map[string]string{"app": "x"}}, Spec: batchv1.JobSpec{Template: template}}, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := target.Slim("sonde-system")(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			kept, ok := got.(runtime.Object)
			if _, full := got.(*corev1.Pod); full || !ok {
				t.Fatalf("kept as %T", got)
			}
			if diff := cmp.Diff(tc.want, kept.DeepCopyObject()); diff != "" {
				t.Errorf("copy (-want +got):\n%s", diff)
			}
			again, err := target.Slim("sonde-system")(got)
			if err != nil || again != got {
				t.Errorf("the second time: %v (%v)", again, err)
			}
		})
	}
}
