//go:build e2e

package fluentpvc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// A node loses its power for good after a Pod has written 100 MB. An administrator taints it as out of service. Within 60 s the
// finalizer Job reads the same bytes on another node.
func TestFluentPVCNodeLost(t *testing.T) {
	names := cluster.NodeNames(t)
	if len(names) < 2 {
		t.Fatalf("nodes %v, want two", names)
	}
	lost := names[1]
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) { s.Retention = "1h" })
	const lines = 100 << 20 / 32
	p := cluster.WriterPod(ns, "writer", f, "-lines", fmt.Sprint(lines), "-stay")
	p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: lost}
	claim := create(t, p)
	cluster.Eventually(t, 2*time.Minute, "100 MB on the volume", func(ctx context.Context) error {
		if log, err := cluster.Logs(ctx, p); err != nil || !strings.Contains(log, "wrote") {
			return errors.Join(err, fmt.Errorf("log %q", log))
		}
		return nil
	})
	cluster.Machine(t, "node-stop", lost)
	t.Cleanup(func() {
		if out, err := exec.Command(cluster.Command, "node-start", lost).CombinedOutput(); err != nil {
			t.Errorf("node-start: %v\n%s", err, out)
		}
		cluster.AwaitManager(context.WithoutCancel(t.Context()), t)
	})
	node := cluster.AwaitNotReady(t, lost)
	taint(t, node, []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}})
	tainted := time.Now()
	t.Cleanup(func() { taint(t, node, nil) }) // before the node starts
	b := cluster.AwaitBinding(t, ns, claim, sondev1.BindingFinalizerJobSucceeded, 60*time.Second)
	t.Logf("processed %s after the taint", time.Since(tainted).Round(time.Second))
	if log, want := cluster.FinalizerLog(t, b), expected(lines); !strings.Contains(log, fmt.Sprintf("%s %d log", want, lines*32)) {
		t.Errorf("the finalizer read %q, want SHA-256 %s", log, want)
	}
	run(t, "fluentpvc", "discard", claim, "-n", ns, "--yes")
	cluster.NoClaims(t, ns, 30*time.Second)
}

// taint gives a node these taints besides those of Kubernetes.
func taint(t *testing.T, node *corev1.Node, taints []corev1.Taint) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	cluster.Eventually(t, 30*time.Second, "node "+node.Name+" tainted", func(context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
			return err
		}
		all := taints
		for _, other := range node.Spec.Taints {
			if other.Key != corev1.TaintNodeOutOfService {
				all = append(all, other)
			}
		}
		node.Spec.Taints = all
		return cluster.Admin.Update(ctx, node)
	})
}
