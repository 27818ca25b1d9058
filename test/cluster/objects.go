package cluster

import (
	"context"
	"fmt"
	osexec "os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/scc"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// OnNode runs a command inside a node of the local cluster.
func OnNode(t *testing.T, node string, command ...string) string {
	t.Helper()
	out, err := osexec.CommandContext(t.Context(), Command, append([]string{"node-exec", node, "--"}, command...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("on node %s: %v: %v\n%s", node, command, err, out)
	}
	return string(out)
}

// Simulated is the label, with value kwok, of nodes that only seem to run Pods (cluster kwok).
const Simulated = "type"

// NodeNames lists the cluster's nodes, but for simulated ones.
func NodeNames(t *testing.T) []string {
	t.Helper()
	var nodes corev1.NodeList
	if err := Admin.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range nodes.Items {
		if nodes.Items[i].Labels[Simulated] != "kwok" {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names
}

// AgentProcesses lists the command lines of agents that run on any node.
func AgentProcesses(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, node := range NodeNames(t) {
		for line := range strings.Lines(OnNode(t, node, "ps", "-e", "-o", "args")) {
			if strings.HasPrefix(line, "/agent ") {
				found = append(found, node+": "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// Gone waits until an object is deleted.
func Gone(t *testing.T, o client.Object, within time.Duration) {
	t.Helper()
	Eventually(t, within, fmt.Sprintf("%T %s deleted", o, o.GetName()), func(ctx context.Context) error {
		err := Admin.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("still there, deleted at %v", o.GetDeletionTimestamp())
	})
}

// DeleteNow deletes an object, and what belongs to it in the background.
func DeleteNow(t *testing.T, o client.Object) {
	t.Helper()
	if err := Admin.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// NoAgents waits until no probe or keeper runs on any node.
func NoAgents(t *testing.T, within time.Duration) {
	t.Helper()
	Eventually(t, within, "no agent on any node", func(context.Context) error {
		if left := AgentProcesses(t); len(left) > 0 {
			return fmt.Errorf("%v", left)
		}
		return nil
	})
}

// CreateEventually creates an object, within the time that a right needs to be known everywhere.
func CreateEventually(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	Eventually(t, 15*time.Second, fmt.Sprintf("%T %s created", o, o.GetName()), func(ctx context.Context) error { return c.Create(ctx, o) })
	t.Cleanup(func() {
		_ = Admin.Delete(context.WithoutCancel(t.Context()), o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
}

const // MaxStatus bounds an object in bytes: etcd takes a megabyte and a half.
MaxStatus = 256 << 10

// CreateCapture makes a capture and does not wait for it.
func CreateCapture(t *testing.T, ns string, spec sondev1.PacketCaptureSpec) *sondev1.PacketCapture {
	t.Helper()
	pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "cap-", Namespace: ns}, Spec: spec}
	if err := Admin.Create(t.Context(), pc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Admin.Delete(context.WithoutCancel(t.Context()), pc) })
	return pc
}

// WantedSCC is what the operator should keep the constraints at.
func WantedSCC(setting privilege.Setting) *unstructured.Unstructured {
	return scc.Build(agentjob.Options{Namespace: OperatorNamespace, Privilege: setting})
}

// LiveSCC reads the SecurityContextConstraints of the agents.
func LiveSCC(ctx context.Context) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(scc.Kind)
	return u, Admin.Get(ctx, client.ObjectKey{Name: agentjob.RequiredSCC}, u)
}

// Create makes an object and deletes it when the test ends.
func Create(t *testing.T, o client.Object) {
	t.Helper()
	if err := Admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = Admin.Delete(context.WithoutCancel(t.Context()), o, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
}
