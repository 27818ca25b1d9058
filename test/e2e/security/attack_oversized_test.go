//go:build e2e

package security

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Oversized input is refused with a message. Kubernetes lets every user write any number of labels, among others: these
// cost the manager nothing lasting. Others can capture meanwhile.
func TestAttackOversized(t *testing.T) {
	victimNS, attackerNS := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.Deployment(t, victimNS, "sink", 1, "sink")
	cluster.Deployment(t, attackerNS, "sink", 1, "sink")
	cluster.Bind(t, attackerNS, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	object := func(change func(*sondev1.PacketCapture)) *sondev1.PacketCapture {
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: attackerNS, GenerateName: "big-"},
			Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"},
		}
		change(pc)
		return pc
	}
	many := object(func(pc *sondev1.PacketCapture) {
		for i := range 10_000 {
			pc.Spec.Interfaces = append(pc.Spec.Interfaces, "eth"+strconv.Itoa(i))
		}
	})
	before := managerMemory(t)
	t.Run("protected", func(t *testing.T) {
		for name, tc := range map[string]struct {
			pc   *sondev1.PacketCapture
			want string
		}{
			"10,000 interfaces": {many, "must have at most 16 items"},
			"a filter of 1 MiB": {object(func(pc *sondev1.PacketCapture) { pc.Spec.Filter = strings.Repeat("udp or ", 150_000) + "udp" }), "reads at most 1024 KiB: shorten its fields"},
			"an annotation, 1 MiB": {object(func(pc *sondev1.PacketCapture) {
				pc.Annotations = map[string]string{"e2e/x": strings.Repeat("x", 1<<20)}
			}), "reads at most 1024 KiB"},
			"a name of 1 MiB":    {object(func(pc *sondev1.PacketCapture) { pc.Spec.TargetDeployment = strings.Repeat("x", 1<<20) }), "reads at most 1024 KiB"},
			"a filter of 100 kB": {object(func(pc *sondev1.PacketCapture) { pc.Spec.Filter = strings.Repeat("udp or ", 15_000) + "udp" }), "at most 4096 are allowed"},
			"12,000 labels":      {object(func(pc *sondev1.PacketCapture) { pc.Labels = manyLabels(12_000) }), "reads at most 1024 KiB"},
			"65 labels":          {object(func(pc *sondev1.PacketCapture) { pc.Labels = manyLabels(65) }), "metadata.labels has 65 entries"},
			"4 MiB":              {object(func(pc *sondev1.PacketCapture) { pc.Labels = manyLabels(40_000) }), "entity too large"},
			"a jobId of 1 MiB":   {object(func(pc *sondev1.PacketCapture) { pc.Spec.JobID = strings.Repeat("x", 1<<20) }), "reads at most 1024 KiB"},
		} {
			err := mallory.Create(t.Context(), tc.pc)
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 4<<10 {
				t.Errorf("%s: got %.500v, want a refusal with %q", name, err, tc.want)
			}
		}
	})
	t.Run("protected: what may be large", func(t *testing.T) {
		crowd := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: attackerNS, Name: "crowd"}, Spec: cluster.PodSpec("idle")}
		crowd.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "e2e/attack"}} // no node is to suffer
		for i := range 1_400 {                                                        // below 1 MiB as JSON, with managed fields and what OpenShift adds to each container
			c := cluster.PodSpec("idle").Containers[0]
			c.Name = "c" + strconv.Itoa(i)
			crowd.Spec.Containers = append(crowd.Spec.Containers, c)
		}
		if err := mallory.Create(t.Context(), crowd); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := mallory.Create(t.Context(), object(func(pc *sondev1.PacketCapture) {
				pc.Annotations, pc.Spec.TargetDeployment = map[string]string{"e2e/x": strings.Repeat("x", 250<<10)}, ""
				// A target on no node, so that its captures take no other capture's place.
				pc.Spec.TargetRef = &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: crowd.Name}
			})); err != nil {
				t.Fatal(err)
			}
		}
		cluster.Capture(t, cluster.Admin, victimNS, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
		if after := managerMemory(t); after > before+64<<20 {
			t.Errorf("the manager's memory went from %d to %d MiB, want at most 64 MiB more", before>>20, after>>20)
		}
		cluster.StopManager(t)
		// A manager before this bound admitted any number of labels. Without the webhook the API server does, too.
		configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sonde"}}
		if err := cluster.Admin.Delete(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
		for range 40 { // of 1 MiB each
			if err := mallory.Create(t.Context(), object(func(pc *sondev1.PacketCapture) { pc.Labels = manyLabels(12_000) })); err != nil {
				t.Fatal(err)
			}
		}
		cluster.StartManager(t)
		cluster.Capture(t, cluster.Admin, victimNS, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
		t.Logf("the manager's memory: %d MiB before, at most %d MiB in its start beside 40 objects of 12,000 labels", before>>20, managerPeak(t)>>20)
	})
	t.Run("control: no limit in the schema", func(t *testing.T) {
		liftLimit(t)
		cluster.Eventually(t, 30*time.Second, "admitted", func(ctx context.Context) error { return mallory.Create(ctx, many, client.DryRunAll) })
	})
}

func manyLabels(n int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels["e2e/x"+strconv.Itoa(i)] = strings.Repeat("x", 63)
	}
	return labels
}

// liftLimit removes the bound on spec.interfaces until the test ends.
func liftLimit(t *testing.T) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	crd.SetName("packetcaptures.monitoring.openshift.tpg")
	set := func(ctx context.Context, most int) error {
		// The set's own check compares each item with each other, for which the API server demands a bound.
		path := "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/interfaces/"
		patch := fmt.Appendf(nil, `[{"op":"replace","path":"%smaxItems","value":%d}]`, path, most)
		return cluster.Admin.Patch(ctx, crd, client.RawPatch("application/json-patch+json", patch))
	}
	t.Cleanup(func() {
		if err := set(context.WithoutCancel(t.Context()), 16); err != nil {
			t.Error(err)
		}
	})
	if err := set(t.Context(), 20_000); err != nil {
		t.Fatal(err)
	}
}

// managerMemory returns the memory of the largest manager in bytes. It also checks that no manager was restarted.
func managerMemory(t *testing.T) int64 {
	t.Helper()
	notRestarted(t)
	return largestManager(t)
}

// notRestarted fails the test if a manager was restarted.
func notRestarted(t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels(cluster.Manager(t).Spec.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	for i := range pods.Items {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if s.RestartCount > 0 {
				t.Errorf("%s was restarted %d times, want none: %+v", pods.Items[i].Name, s.RestartCount, s.LastTerminationState)
			}
		}
	}
}

// managerPeak returns the most memory that any manager has had since its start, in bytes. It also checks that none was
// restarted.
func managerPeak(t *testing.T) int64 {
	t.Helper()
	notRestarted(t)
	var most int64
	for _, node := range cluster.NodeNames(t) {
		for line := range strings.Lines(cluster.OnNode(t, node, "sh", "-c", `for p in $(pidof manager); do grep VmHWM /proc/$p/status; done`)) {
			var kib int64
			if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			most = max(most, kib<<10)
		}
	}
	return most
}

// largestManager returns the memory of the largest manager in bytes.
func largestManager(t *testing.T) int64 {
	t.Helper()
	var most int64
	for _, node := range cluster.NodeNames(t) {
		for line := range strings.Lines(cluster.OnNode(t, node, "ps", "-e", "-o", "rss,args")) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[1] != "/manager" {
				continue
			}
			kib, err := strconv.ParseInt(fields[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, kib<<10)
		}
	}
	if most == 0 {
		t.Fatal("found no process of the manager")
	}
	return most
}
