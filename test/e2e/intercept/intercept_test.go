//go:build e2e

// Package intercept tests on a real cluster that a process outside of it answers requests to a workload's Pods, that others are
// answered by the Pods, and that nothing remains. hack/e2e.sh runs it.
package intercept

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/test/cluster"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := cluster.Setup(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// want fails the test unless each Pod is answered by who; empty means by the Pod itself.
func want(t *testing.T, from *corev1.Pod, to []corev1.Pod, header, who string) {
	t.Helper()
	for i := range to {
		expected := who
		if who == "" {
			expected = to[i].Name
		}
		if got, err := cluster.Ask(t.Context(), from, &to[i], header); err != nil || got != expected {
			t.Errorf("a request with %q to %s is answered by %q (%v), want %q", header, to[i].Name, got, err, expected)
		}
	}
}

const mine = "x-developer=alice"

// TestInterceptLife: the Pods of a Deployment on two nodes, some more, and fewer.
func TestInterceptLife(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	web := cluster.Deployment(t, ns, "web", 3, "serve")
	pods := cluster.ReadyPods(t, web, 3)
	asker := cluster.Pod(t, ns, "asker", cluster.PodSpec("idle"))
	want(t, asker, pods, mine, "")

	i := cluster.Intercept(t, ns, "web", 3, "--to", cluster.Laptop(t, "laptop"), "--header", mine)
	want(t, asker, pods, mine, "laptop")
	want(t, asker, pods, "x-developer=bob", "")
	want(t, asker, pods, "", "")

	cluster.Scale(t, web, 5)
	more := cluster.ReadyPods(t, web, 5)
	i.Await(t, 5, 30*time.Second)
	want(t, asker, more, mine, "laptop")
	cluster.Scale(t, web, 1)
	one := cluster.ReadyPods(t, web, 1)
	i.Await(t, 1, 30*time.Second)
	want(t, asker, one, mine, "laptop")

	i.Interrupt(t)
	want(t, asker, one, mine, "")
	cluster.NoIntercepts(t, time.Minute)
	unchanged(t, pods)
}

// TestInterceptEveryConnection: without a match every connection goes to the client, and a second request for the port is refused.
func TestInterceptEveryConnection(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "web", 1, "serve"), 1)
	asker := cluster.Pod(t, ns, "asker", cluster.PodSpec("idle"))
	i := cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"))
	want(t, asker, pods, "", "laptop")
	second, _, errOut := cluster.StartPlugin(t, "intercept", "deploy/web", "-n", ns, "--port", "8080", "--to", "127.0.0.1:1")
	if err := second.Wait(); err == nil {
		t.Error("a second intercept of every connection is admitted")
	}
	errOut.Await(t, time.Second, "takes every connection to port 8080")
	i.Interrupt(t)
	want(t, asker, pods, "", "")
	cluster.NoIntercepts(t, time.Minute)
}

// TestInterceptAgain: an intercept that begins while the Pods of the last one are still ending works as any other. Stowaway's new Pod
// must not get the old one's Secret.
func TestInterceptAgain(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "web", 1, "serve"), 1)
	asker := cluster.Pod(t, ns, "asker", cluster.PodSpec("idle"))
	to := cluster.Laptop(t, "laptop")
	for range 6 {
		i := cluster.Intercept(t, ns, "web", 1, "--to", to)
		want(t, asker, pods, "", "laptop")
		i.Interrupt(t)
	}
	cluster.NoIntercepts(t, time.Minute)
}

// TestInterceptLostClient: when the developer's process is killed, the app answers within 4 seconds.
func TestInterceptLostClient(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "web", 1, "serve"), 1)
	asker := cluster.Pod(t, ns, "asker", cluster.PodSpec("idle"))
	i := cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"), "--header", mine)
	want(t, asker, pods, mine, "laptop")
	if err := i.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 4*time.Second, "the app answers", func(ctx context.Context) error {
		if got, err := cluster.Ask(ctx, asker, &pods[0], mine); err != nil || got != pods[0].Name {
			return fmt.Errorf("answered by %q: %w", got, err)
		}
		return nil
	})
	if out, err := exec.CommandContext(t.Context(), cluster.Plugin, "down", "-n", ns).CombinedOutput(); err != nil {
		t.Errorf("kubectl sonde down: %v\n%s", err, out)
	}
	cluster.NoIntercepts(t, time.Minute)
}

// unchanged fails the test if one of the Pods that still exist was changed or restarted.
func unchanged(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		before, now := &pods[i], &corev1.Pod{}
		if cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(before), now) != nil || now.UID != before.UID {
			continue // scaled away
		}
		if diff := cmp.Diff(before.Spec, now.Spec); diff != "" {
			t.Errorf("Pod %s was changed (-before +after):\n%s", now.Name, diff)
		}
		for _, s := range now.Status.ContainerStatuses {
			if s.RestartCount != 0 {
				t.Errorf("container %s of Pod %s was restarted %d times", s.Name, now.Name, s.RestartCount)
			}
		}
	}
}
