//go:build e2e

package floods

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// flood is what a tenant does from a Pod with the ServiceAccount of their namespace, of which they are admin. The Pod has
// no CPU of its own, so it yields to the operator and to the API server.
type flood struct {
	name string
	// args are those of test/workload.
	args func(t *testing.T, ns string) []string
	// reached are parts of the flooder's count, which show that the flood takes place and that a bound is reached.
	reached []string
}

var floods = []flood{
	{"creates PacketCaptures, deletes one when the ceiling is reached", capturesOf, []string{"201: ", "403: "}},
	{"creates Traces, deletes one when the ceiling is reached", tracesOf, []string{"201: ", "403: "}},
	{"creates ResultAccesses, deletes one when the bound is reached", accessesOf, []string{"201: ", "403: "}},
	{"opens progress streams with the tokens of eight users", streamsOf, []string{"200: ", "429: "}},
	{"sends filters that compile for as long as possible", filtersOf, []string{"429: "}},
	{"creates objects of 2.9 MiB", largeOf, []string{"413: "}},
	{"opens silent connections to the webhooks' port", connectionsTo("9443"), []string{"open "}},
	{"opens silent connections to the results port", connectionsTo("9444"), []string{"open "}},
	{"opens silent connections to the metrics port", connectionsTo("8443"), []string{"open "}},
}

const (
	workers = "64"
	lasting = "10m" // of each capture, longer than the flood
)

func capturesOf(t *testing.T, ns string) []string {
	t.Helper()
	cluster.Deployment(t, ns, "sink", 1, "sink")
	return []string{"flood", "-n", workers, "-replace", "-body", bodyOf(t, &sondev1.PacketCapture{
		ObjectMeta: suspended(ns),
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: lasting, RetainFor: "10s"},
	}), pathOf(ns, "packetcaptures")}
}

func tracesOf(t *testing.T, ns string) []string {
	t.Helper()
	cluster.Deployment(t, ns, "sink", 1, "sink")
	return []string{"flood", "-n", workers, "-replace", "-body", bodyOf(t, &sondev1.Trace{
		ObjectMeta: suspended(ns),
		Spec:       sondev1.TraceSpec{TargetDeployment: "sink", Duration: lasting, RetainFor: "10s"},
	}), pathOf(ns, "traces")}
}

// suspended has the label by which the Jobs of a namespace are suspended.
func suspended(ns string) metav1.ObjectMeta {
	return metav1.ObjectMeta{GenerateName: "flood-", Labels: map[string]string{sondev1.LabelAppInstance: ns}}
}

// accessesOf has ten captures without Pods, because one may have fewer ResultAccesses than its namespace.
func accessesOf(t *testing.T, ns string) []string {
	t.Helper()
	cluster.Deployment(t, ns, "idle", 0)
	for i := range 10 {
		idle(t, ns, fmt.Sprintf("idle-%d", i))
	}
	return []string{"flood", "-n", workers, "-replace", "-body", bodyOf(t, &sondev1.ResultAccess{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flood-"},
		Spec: sondev1.ResultAccessSpec{
			CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: "idle-DIGIT"}, TokenHash: "HASH",
		},
	}), pathOf(ns, "resultaccesses")}
}

func streamsOf(t *testing.T, ns string) []string {
	t.Helper()
	cluster.Deployment(t, ns, "idle", 0)
	pc := idle(t, ns, "idle")
	var tokens []string
	for i := range 8 {
		user := fmt.Sprintf("system:serviceaccount:%s:sa-%d", ns, i)
		cluster.Bind(t, ns, user, "admin")
		tokens = append(tokens, cluster.GrantResults(t, cluster.As(t, user), pc))
	}
	const connections = "300" // for two replicas with 64 places each
	return []string{
		"flood", "-n", connections, "-tokens", strings.Join(tokens, ","),
		"/api/v1/namespaces/" + cluster.OperatorNamespace + "/services/https:sonde-results:https/proxy" + cluster.ResultPath(pc) + "/progress",
	}
}

func filtersOf(t *testing.T, ns string) []string {
	t.Helper()
	cluster.Deployment(t, ns, "sink", 0)
	parts := []string{"port NUMBER"}
	for i := range 330 {
		parts = append(parts, fmt.Sprintf("port %d", i+1))
	}
	return []string{"flood", "-n", workers, "-body", bodyOf(t, &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flood-"},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: lasting, Filter: strings.Join(parts, " or ")},
	}), pathOf(ns, "packetcaptures") + "?dryRun=All"}
}

func largeOf(t *testing.T, ns string) []string {
	t.Helper()
	cluster.Deployment(t, ns, "sink", 0)
	return []string{"flood", "-n", workers, "-pad", fmt.Sprint(2900 << 10), "-body", bodyOf(t, &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flood-", Annotations: map[string]string{"e2e/x": "PAD"}},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: lasting},
	}), pathOf(ns, "packetcaptures")}
}

func connectionsTo(port string) func(*testing.T, string) []string {
	return func(t *testing.T, _ string) []string {
		t.Helper()
		args := []string{"hold", "-n", "1500", "-pause", "1ms"}
		for _, p := range cluster.ManagerPods(t) {
			args = append(args, net.JoinHostPort(p.Status.PodIP, port))
		}
		return args
	}
}

// idle creates a capture of a Deployment without Pods.
func idle(t *testing.T, ns, name string) *sondev1.PacketCapture {
	t.Helper()
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "idle", Duration: "30m"},
	}
	cluster.Create(t, pc)
	return pc
}

func pathOf(ns, resource string) string {
	return "/apis/" + sondev1.GroupVersion.String() + "/namespaces/" + ns + "/" + resource
}

func bodyOf(t *testing.T, o client.Object) string {
	t.Helper()
	gvk, err := cluster.Admin.GroupVersionKindFor(o)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// awaitFlood waits until the flooder's count has all parts.
func awaitFlood(t *testing.T, flooder *corev1.Pod, parts []string) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "the flood", func(ctx context.Context) error {
		text, err := cluster.Logs(ctx, flooder)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				return fmt.Errorf("the flooder counts %.500q, want some %q", text, part)
			}
		}
		return nil
	})
}

func lastLine(t *testing.T, flooder *corev1.Pod) string {
	t.Helper()
	text, err := cluster.Logs(t.Context(), flooder)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// deleteAll deletes the objects of these kinds in a namespace.
func deleteAll(t *testing.T, ns string, kinds ...client.Object) {
	t.Helper()
	for _, o := range kinds {
		if err := cluster.Admin.DeleteAllOf(t.Context(), o, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
	}
}

// nothingLeft waits until the operator's namespace has objects of one capture only.
func nothingLeft(t *testing.T, except string) {
	t.Helper()
	cluster.Eventually(t, 3*time.Minute, "all objects of the flood deleted", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &corev1.PodList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
			if err := cluster.Admin.List(ctx, list, client.InNamespace(cluster.OperatorNamespace), client.HasLabels{sondev1.LabelUID}); err != nil {
				return err
			}
			objects, err := apimeta.ExtractList(list)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if o := o.(client.Object); o.GetLabels()[sondev1.LabelUID] != except {
					return fmt.Errorf("%d of %T, %s among them, want none of the flood's", len(objects), list, o.GetName())
				}
			}
		}
		return nil
	})
}

// restarts counts the restarts of each of the manager's Pods.
type restarts map[string]int32

func restartsOf(t *testing.T) restarts {
	t.Helper()
	counts := restarts{}
	for _, p := range cluster.ManagerPods(t) {
		for i := range p.Status.ContainerStatuses {
			s := &p.Status.ContainerStatuses[i]
			counts[string(p.UID)] += s.RestartCount
			if s.RestartCount > 0 {
				t.Logf("%s: %d restarts, the last one after %+v", p.Name, s.RestartCount, s.LastTerminationState.Terminated)
			}
		}
	}
	return counts
}

// since counts the restarts after an earlier count. A new Pod is one.
func (r restarts) since(before restarts) int {
	total := 0
	for uid, count := range r {
		was, ok := before[uid]
		if !ok {
			total++
		}
		total += int(count - was)
	}
	return total
}
