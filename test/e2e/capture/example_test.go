//go:build e2e

package capture

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// The example of packet-capture-operator works unchanged: namespace, names, labels, ConfigMap and Jobs are as its
// documentation says.
func TestSourceExample(t *testing.T) {
	b, err := os.ReadFile("../../../config/samples/monitoring_v1alpha1_packetcapture.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pc sondev1.PacketCapture
	if err := yaml.UnmarshalStrict(b, &pc); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pc.Spec.TargetNamespace}}
	if err := cluster.Admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), ns) })
	target := cluster.Deployment(t, pc.Spec.TargetNamespace, pc.Spec.TargetDeployment, 2, "serve")
	pods := cluster.ReadyPods(t, target, 2)

	wantLabels := labelsForPeople(pc.Labels)
	if err := cluster.Admin.Create(t.Context(), &pc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), &pc) })
	cluster.AwaitCapturing(t, &pc)

	var cm corev1.ConfigMap
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: "openshift-gitops-openshift-gitops-server"}, &cm); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantLabels, labelsForPeople(cm.Labels)); diff != "" {
		t.Errorf("ConfigMap's labels (-want +got):\n%s", diff)
	}
	for i := range pods {
		var job batchv1.Job
		if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.OperatorNamespace, Name: pods[i].Name + "-qwer"}, &job); err != nil {
			t.Error(err)
			continue
		}
		if diff := cmp.Diff(wantLabels, labelsForPeople(job.Labels)); diff != "" {
			t.Errorf("Job's labels (-want +got):\n%s", diff)
		}
		probe := job.Spec.Template.Spec.Containers[0]
		privileged := os.Getenv("SONDE_PROBE_PRIVILEGE") != "Capabilities" // as hack/e2e.sh set it
		if sc := probe.SecurityContext; sc == nil || (sc.Privileged != nil && *sc.Privileged) != privileged || !job.Spec.Template.Spec.HostPID {
			t.Errorf("Job %s: want privileged %t, and hostPID: %+v", job.Name, privileged, sc)
		}
	}
	var jobs batchv1.JobList
	if err := cluster.Admin.List(t.Context(), &jobs, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(pc.UID)}); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != len(pods) {
		t.Errorf("got %d Jobs, want %d, one per Pod", len(jobs.Items), len(pods))
	}

	cluster.AwaitFinal(t, &pc, 60*time.Second)
	if took := pc.Status.CompletionTime.Sub(pc.Status.StartTime.Time); pc.Status.Phase != sondev1.PhaseCompleted || took < 30*time.Second {
		t.Errorf("phase %s after %s, want Completed after 30 s: %+v", pc.Status.Phase, took, pc.Status)
	}
	cluster.Download(t, &pc)

	if err := cluster.Admin.Delete(t.Context(), &pc); err != nil {
		t.Fatal(err)
	}
	cluster.NothingLeft(t, string(pc.UID))
}

// labelsForPeople returns the five labels that packet-capture-operator promises to copy.
func labelsForPeople(all map[string]string) map[string]string {
	picked := map[string]string{}
	for k, v := range all {
		if strings.HasPrefix(k, "app.kubernetes.io/") {
			picked[k] = v
		}
	}
	return picked
}

// Two captures of the same Pods at the same time each hold all packets, also with the same jobId.
func TestTwoCapturesOfTheSamePods(t *testing.T) {
	ns, other := cluster.Namespace(t, nil), cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"})
	target := cluster.Deployment(t, ns, "sink", 2, "sink")
	pods := cluster.ReadyPods(t, target, 2)
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	spec := sondev1.PacketCaptureSpec{JobID: "same", TargetNamespace: ns, TargetDeployment: "sink", Duration: "5m", Filter: "udp"}
	first, second := cluster.Capture(t, cluster.Admin, ns, spec), cluster.Capture(t, cluster.Admin, other, spec)

	for i := range pods {
		cluster.Send(t, sender, cluster.UDPAddr(pods[i].Status.PodIP), uint32(i+1), 1000) //nolint:gosec // two Pods
	}
	for _, pc := range []*sondev1.PacketCapture{first, second} {
		cluster.Stop(t, pc)
		got := cluster.Download(t, pc)
		if len(got) != 2 {
			t.Errorf("got %d files, want 2", len(got))
		}
		for i := range pods {
			if different, n := got[pods[i].Name].Count(uint32(i + 1)); different != 1000 || n != 1000 { //nolint:gosec // two Pods
				t.Errorf("capture %s/%s, %s: got %d numbers in %d packets, want 1000", pc.Namespace, pc.Name, pods[i].Name, different, n)
			}
		}
		if msg := fmt.Sprint(pc.Status); pc == second && strings.Contains(msg, first.Name) {
			t.Errorf("the status of the second capture mentions the first: %s", msg)
		}
	}
}

// A capture that follows another of the same target at once gets its own configuration and keys. The ConfigMap has the
// same name, and the kubelet still caches the other.
func TestCaptureAfterCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	target := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, target, 1)[0]
	sender := cluster.Pod(t, ns, "sender", cluster.PodSpec("idle"))
	for i := range 4 {
		run, limit := uint32(i+1), int64(100*(i+1))
		pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m", Filter: "udp", MaxPackets: &limit})
		cluster.Send(t, sender, cluster.UDPAddr(p.Status.PodIP), run, 500)
		cluster.Stop(t, pc)
		if got := cluster.Download(t, pc)[p.Name]; got.Packets != int(limit) || len(got.Numbers[run]) != int(limit) {
			t.Errorf("capture %d: %d packets, %d of its own run, want %d", i, got.Packets, len(got.Numbers[run]), limit)
		}
		cluster.DeleteNow(t, pc)
	}
}
