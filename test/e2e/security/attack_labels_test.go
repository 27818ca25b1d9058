//go:build e2e

package security

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// Every user can write the labels by which the operator finds the objects of a capture. The operator searches only its
// own namespace, so it never deletes a user's object, whatever its labels.
func TestAttackLabelsForTheSweeper(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	pc := cluster.Capture(t, mallory, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	dead := metav1.ObjectMeta{
		Labels:      map[string]string{sondev1.LabelUID: "00000000-dead-4000-8000-000000000000", sondev1.LabelKind: kind.PacketCapture.Name, "app": "mine"},
		Annotations: map[string]string{sondev1.AnnotationOwner: pc.Namespace + "/" + pc.Name},
	}
	in := func(namespace, uid string) []client.Object {
		meta := dead.DeepCopy()
		meta.Namespace, meta.GenerateName, meta.Labels[sondev1.LabelUID] = namespace, "mine-", uid
		job := jobOf(&corev1.Pod{Spec: cluster.PodSpec("idle")})
		job.ObjectMeta, job.Spec.Suspend, job.Spec.Template.Spec.RestartPolicy = *meta, new(true), corev1.RestartPolicyNever
		return []client.Object{&corev1.ConfigMap{ObjectMeta: *meta.DeepCopy()}, &corev1.Secret{ObjectMeta: *meta.DeepCopy()}, job}
	}
	var mine []client.Object
	for _, uid := range []string{dead.Labels[sondev1.LabelUID], string(pc.UID)} {
		mine = append(mine, in(ns, uid)...)
	}
	for _, o := range mine {
		if err := mallory.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	theirs := in(cluster.OperatorNamespace, dead.Labels[sondev1.LabelUID])
	for _, o := range theirs {
		if err := cluster.Admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	cluster.DeleteNow(t, pc) // sweeps the capture's objects
	cluster.NothingLeft(t, string(pc.UID))
	t.Run("control: the same labels in the operator's namespace", func(t *testing.T) {
		for _, o := range theirs {
			cluster.Gone(t, o, 30*time.Second)
		}
	})
	t.Run("protected", func(t *testing.T) {
		cluster.StopManager(t)
		cluster.StartManager(t) // sweeps everything
		admittedAgain(t, mallory, ns)
		for _, o := range mine {
			if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil || !o.GetDeletionTimestamp().IsZero() {
				t.Errorf("the user's %T %s was swept: %v", o, o.GetName(), err)
			}
		}
	})
}

// admittedAgain waits for a complete capture, after which a starting manager has finished its sweep.
func admittedAgain(t *testing.T, c client.Client, ns string) {
	t.Helper()
	pc := cluster.Capture(t, c, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	cluster.DeleteNow(t, pc)
	cluster.NothingLeft(t, string(pc.UID))
}

// The operator trusts a Pod that looks like a probe's, with its labels and account, only in its own namespace.
func TestAttackForgedAccount(t *testing.T) {
	const forged = 424242
	ns := cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	// attack starts a forged agent before the real one, because the older of two counts.
	attack := func(t *testing.T, where string, by client.Client) *sondev1.PacketCapture {
		t.Helper()
		gated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "gated-"}, Spec: cluster.PodSpec("sink")}
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e/attack"}}
		if err := mallory.Create(t.Context(), gated); err != nil {
			t.Fatal(err)
		}
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "cap-"},
			Spec:       sondev1.PacketCaptureSpec{TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: gated.Name}, Duration: "5s"},
		}
		if err := mallory.Create(t.Context(), pc); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), pc) })
		forger := forgedAgent(t, where, pc, gated, forged)
		cluster.CreateEventually(t, by, forger)
		cluster.Eventually(t, time.Minute, "the forged account", func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(forger), forger); err != nil {
				return err
			}
			if probeAccount(forger).Seen != forged {
				return fmt.Errorf("statuses %+v", forger.Status.ContainerStatuses)
			}
			return nil
		})
		gated.Spec.SchedulingGates = nil
		if err := cluster.Admin.Patch(t.Context(), gated, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"schedulingGates":null}}`))); err != nil {
			t.Fatal(err)
		}
		cluster.AwaitFinal(t, pc, time.Minute)
		return pc
	}
	t.Run("protected", func(t *testing.T) {
		if pc := attack(t, ns, mallory); pc.Status.Totals.Packets >= forged || pc.Status.Phase != sondev1.PhaseCompleted {
			t.Errorf("%s with %d packets, want the forged account ignored", pc.Status.Phase, pc.Status.Totals.Packets)
		}
	})
	t.Run("control: in the operator's namespace", func(t *testing.T) {
		if pc := attack(t, cluster.OperatorNamespace, cluster.Admin); pc.Status.Totals.Packets != forged {
			t.Errorf("%d packets, want the forged %d: the forged Pod does not resemble a probe's", pc.Status.Totals.Packets, forged)
		}
	})
}

// forgedAgent is a Pod with everything that the manager reads from an agent's Pod.
func forgedAgent(t *testing.T, ns string, pc *sondev1.PacketCapture, of *corev1.Pod, packets int64) *corev1.Pod {
	t.Helper()
	a := account.Account{
		State: account.StateDone, Engine: "afpacket", Reason: sondev1.ReasonDuration, Complete: true,
		Counts: account.Counts{Seen: packets, Packets: packets, Bytes: packets}, Started: time.Now().Add(-time.Minute), Ended: time.Now(),
	}
	text, err := a.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{sondev1.LabelUID: string(pc.UID), sondev1.LabelKind: kind.PacketCapture.Name, sondev1.LabelTargetPodUID: string(of.UID)}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, GenerateName: "forged-", Labels: labels,
			Annotations: map[string]string{sondev1.AnnotationOwner: pc.Namespace + "/" + pc.Name, sondev1.AnnotationTargetPod: of.Name},
		},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{
			{Name: captureconfig.ContainerProbe, Image: cluster.Busybox, Command: []string{"sh", "-c", `echo -n "$0" >/dev/termination-log`, string(text)}},
			{Name: captureconfig.ContainerKeeper, Image: cluster.Busybox, Command: []string{"sleep", "600"}},
		}},
	}
}

// Users' own metadata on a PacketCapture: the labels by which the operator finds objects are never copied, and users
// cannot write status and stamp.
func TestAttackLabelsOfTheCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	victim := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	claimed := map[string]string{
		sondev1.LabelUID: string(victim.UID), sondev1.LabelTargetPodUID: "x", sondev1.LabelKind: "Trace", "app.kubernetes.io/component": "manager",
		sondev1.LabelAppName: "sonde", "job-name": "x", "pod-security.kubernetes.io/enforce": "privileged",
	}
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, GenerateName: "cap-", Labels: claimed,
			Annotations: map[string]string{sondev1.AnnotationOwner: ns + "/" + victim.Name, "openshift.io/required-scc": "privileged", "openshift.io/scc": "privileged"},
		},
		Spec:   sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"},
		Status: sondev1.CaptureStatus{Phase: sondev1.PhaseCompleted, JobID: "evil"},
	}
	if err := mallory.Create(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), pc) })
	cluster.AwaitCapturing(t, pc)
	t.Run("protected", func(t *testing.T) {
		job := cluster.JobsOf(t, pc)[0]
		for key, evil := range claimed {
			if got := job.Labels[key]; got == evil && key != sondev1.LabelAppName {
				t.Errorf("the Job has the user's label %s=%s, want it not copied", key, got)
			}
		}
		if got := job.Annotations[sondev1.AnnotationOwner]; got != ns+"/"+pc.Name {
			t.Errorf("the Job's owner is %s, want no change by the user", got)
		}
		if got := job.Spec.Template.Annotations["openshift.io/required-scc"]; got != agentjob.RequiredSCC {
			t.Errorf("the Job asks for the SCC %s, want the probes'", got)
		}
		if len(cluster.JobsOf(t, victim)) != 1 || pc.Status.JobID == "evil" {
			t.Errorf("the victim has %d Jobs, want 1; the user's capture has jobId %s, want it unchanged", len(cluster.JobsOf(t, victim)), pc.Status.JobID)
		}
		noServiceSelects(t, pc)
		wantForbidden(t, mallory.Status().Patch(t.Context(), pc, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Completed"}}`))), "packetcaptures/status")
		for _, annotation := range []string{sondev1.AnnotationRequester, sondev1.AnnotationStamp} {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, victim.Annotations[annotation]+" ")
			wantForbidden(t, mallory.Patch(t.Context(), pc, client.RawPatch("application/merge-patch+json", []byte(patch))), "is written by the operator alone")
		}
	})
	t.Run("control: the same on a Job there", func(t *testing.T) {
		job := cluster.JobsOf(t, pc)[0]
		if err := cluster.Admin.Patch(t.Context(), &job, client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q},"annotations":{%q:%q}}}`, sondev1.LabelUID, victim.UID, sondev1.AnnotationOwner, ns+"/"+victim.Name))); err != nil {
			t.Fatal(err)
		}
		cluster.DeleteNow(t, victim)
		cluster.Gone(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: job.Name}}, 30*time.Second)
	})
	t.Run("control: the right to the status", func(t *testing.T) {
		if err := cluster.Admin.Status().Patch(t.Context(), pc, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"target":"mine"}}`))); err != nil || pc.Status.Target != "mine" {
			t.Errorf("target %q: %v", pc.Status.Target, err)
		}
	})
}

// noServiceSelects asserts that none of the operator's Services selects an agent's Pod.
func noServiceSelects(t *testing.T, pc *sondev1.PacketCapture) {
	t.Helper()
	var services corev1.ServiceList
	var agents corev1.PodList
	if err := cluster.Admin.List(t.Context(), &services, client.InNamespace(cluster.OperatorNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, s := range services.Items {
		if err := cluster.Admin.List(t.Context(), &agents, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels(s.Spec.Selector), client.HasLabels{sondev1.LabelUID}); err != nil {
			t.Fatal(err)
		}
		if len(agents.Items) > 0 {
			t.Errorf("Service %s selects an agent of %s, want none", s.Name, pc.Name)
		}
	}
}
