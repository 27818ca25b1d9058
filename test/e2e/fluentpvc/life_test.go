//go:build e2e

package fluentpvc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// expected is the SHA-256 of the lines that the workload writes.
func expected(lines int) string {
	h := sha256.New()
	for n := range lines {
		fmt.Fprintf(h, "%031d\n", n)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// create creates a Pod that names a FluentPVC, and returns the name of its claim. On a busy machine the webhook may have no answer
// in time, so it tries again, as controllers do.
func create(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	cluster.Eventually(t, patience, "Pod "+p.Name+" created", func(context.Context) error { return cluster.Admin.Create(t.Context(), p) })
	return cluster.ClaimOf(t, p)
}

// run runs a command of the plugin.
func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), cluster.Plugin, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

func objectMeta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

// A Pod writes, ends, and its finalizer reads the same bytes. Then nothing is left.
func TestFluentPVCLife(t *testing.T) {
	t.Parallel()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) {
		s.SidecarContainerTemplate.Args = []string{"ship", "-until", cluster.VolumePath + "/log"}
		s.DeletePodIfSidecarContainerTerminationDetected = new(false)
		s.Retention = "1h"
	})
	claim := create(t, cluster.WriterPod(ns, "writer", f, "-lines", "100000"))
	b := cluster.AwaitBinding(t, ns, claim, sondev1.BindingFinalizerJobSucceeded, patience)
	if log, want := cluster.FinalizerLog(t, b), expected(100000); !strings.Contains(log, want+" 3200000 log") {
		t.Errorf("the finalizer read %q, want SHA-256 %s", log, want)
	}
	cluster.DeleteNow(t, &corev1.Pod{ObjectMeta: objectMeta(ns, "writer")}) // Kubernetes keeps its claim as long
	run(t, "fluentpvc", "discard", claim, "-n", ns, "--yes")
	cluster.NoClaims(t, ns, patience)
}

// Each Pod of a Deployment has a volume of its own. When the Deployment is deleted, each volume is processed, although the FluentPVC
// is deleted too.
func TestFluentPVCOfADeployment(t *testing.T) {
	t.Parallel()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, nil)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "writer"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "writer"}},
			Template: corev1.PodTemplateSpec{
				// The label of the source system, to show that it works too.
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "writer", sondev1.KeyFluentPVCSource: f.Name}},
				Spec:       cluster.VolumeSpec("write", "-file", cluster.VolumePath+"/log", "-stay"),
			},
		},
	}
	if err := cluster.Admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	pods := cluster.ReadyPods(t, d, 2)
	claims := map[string]bool{}
	for i := range pods {
		claims[cluster.ClaimOf(t, &pods[i])] = true
	}
	if len(claims) != 2 {
		t.Errorf("claims %v, want two", claims)
	}
	for claim := range claims {
		cluster.AwaitBinding(t, ns, claim, sondev1.BindingReady, patience)
	}
	cluster.DeleteNow(t, f)
	cluster.DeleteNow(t, d)
	cluster.NoClaims(t, ns, patience)
}

// Without the admin's permission the Pod is refused, and the refusal has the command.
func TestFluentPVCNeedsPermission(t *testing.T) {
	t.Parallel()
	ns, allowed := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, allowed)
	f := cluster.FluentPVC(t, ns, nil)
	create(t, cluster.WriterPod(allowed, "writer", f)) // the control
	err := cluster.Admin.Create(t.Context(), cluster.WriterPod(ns, "writer", f))
	if err == nil || !strings.Contains(err.Error(), "kubectl sonde fluentpvc allow -n "+ns) {
		t.Errorf("error %v, want a refusal with the command", err)
	}
	cluster.NoClaims(t, ns, time.Second)
}
