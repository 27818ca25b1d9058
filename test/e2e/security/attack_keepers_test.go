//go:build e2e

package security

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/cluster"
)

// distroless is the user of keepers before each had its own. Many images, the manager's among them, name it.
const distroless = 65532

// A keeper shares its Pod, and with it the node's processes, with its probe. An attacker who takes a keeper over finds the
// other keepers and the users' processes there. The stand-in for this attacker is a container in the keeper's Pod with the
// keeper's own security context. It has a shell, and no Landlock, as on an old kernel: agents/keeper shows the effect of that.
func TestAttackAmongKeepers(t *testing.T) {
	ns, secret := cluster.Namespace(t, nil), rand.Text()
	cluster.Deployment(t, ns, "sink", 1, "sink")
	agentOf := func() *corev1.Pod {
		pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: cluster.AgentPod(t, pc)}}
		if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	mallory, other := agentOf(), agentOf()
	spec := cluster.ShellSpec()
	spec.NodeName = mallory.Spec.NodeName
	spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", Value: secret}}
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(distroless)), RunAsGroup: new(int64(distroless))}
	user := cluster.Pod(t, ns, "user", spec)

	asKeeper := standIn(t, mallory, "as-keeper", func(*corev1.SecurityContext) {})
	before := standIn(t, mallory, "as-before", sharedUser)
	standIn(t, other, "as-before", sharedUser)
	keeper, earlier := cluster.ProcessOfPod(t, other, "/agent keeper"), cluster.ProcessOfPod(t, other, "sleep")
	process := cluster.ProcessOfPod(t, user, "sleep")

	t.Run("protected", func(t *testing.T) {
		for what, pid := range map[string]uint32{"another keeper": keeper, "another keeper, not restricted": earlier, "a user's process": process} {
			if diff := cmp.Diff([]string{"command line"}, asKeeper(pid, secret)); diff != "" {
				t.Errorf("what the keeper may do to %s (-want +got):\n%s", what, diff)
			}
		}
		wantOwnUsers(t, mallory, other)
		wantRestricted(t, mallory)
	})
	t.Run("control: keepers of one user", func(t *testing.T) {
		if diff := cmp.Diff([]string{"command line", "files", "key", "memory", "signal"}, before(earlier, secret)); diff != "" {
			t.Errorf("what a keeper may do to another of its user (-want +got):\n%s", diff)
		}
	})
	t.Run("control: a user's process of the same user", func(t *testing.T) {
		if diff := cmp.Diff([]string{"command line", "environment", "memory", "signal"}, before(process, secret)); diff != "" {
			t.Errorf("what a keeper may do to a process of its user (-want +got):\n%s", diff)
		}
	})
}

func sharedUser(sc *corev1.SecurityContext) {
	sc.RunAsUser, sc.RunAsGroup = new(int64(distroless)), new(int64(distroless))
}

// standIn starts a container beside a keeper, with its security context after change and its volumes. The result tries what
// an attacker in this container would, and returns what worked.
func standIn(t *testing.T, agent *corev1.Pod, name string, change func(*corev1.SecurityContext)) func(pid uint32, secret string) []string {
	t.Helper()
	i := slices.IndexFunc(agent.Spec.Containers, func(c corev1.Container) bool { return c.Name == captureconfig.ContainerKeeper })
	keeper := agent.Spec.Containers[i].DeepCopy()
	change(keeper.SecurityContext)
	e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: name, Image: cluster.Busybox, Command: []string{"sleep", "3600"}, SecurityContext: keeper.SecurityContext, VolumeMounts: keeper.VolumeMounts,
	}}
	if err := addEphemeral(t.Context(), t, cluster.Config, agent, e); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, script string) (string, error) {
		return cluster.ExecAs(ctx, cluster.Config, agent, "exec", name, "sh", "-c", script)
	}
	cluster.Eventually(t, time.Minute, "container "+name, func(ctx context.Context) error {
		_, err := run(ctx, "true")
		return err
	})
	return func(pid uint32, secret string) []string {
		t.Helper()
		out, err := run(t.Context(), fmt.Sprintf(`exec 2>/dev/null; P=%d
			[ -n "$(cat /proc/$P/cmdline)" ] && echo "command line"
			grep -q %s /proc/$P/environ && echo environment
			ls /proc/$P/root%s && echo files
			grep -q PRIVATE /proc/$P/root%s/server.key && echo key
			(exec 3</proc/$P/mem) && echo memory
			kill -0 $P && echo signal
			true`, pid, secret, captureconfig.ResultsDir, captureconfig.TLSDir))
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var worked []string
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); slices.Contains([]string{"command line", "environment", "files", "key", "memory", "signal"}, line) {
				worked = append(worked, line)
			}
		}
		return worked
	}
}

// wantOwnUsers checks that the keepers of two Jobs have different users and groups, outside the users of Pods.
func wantOwnUsers(t *testing.T, agents ...*corev1.Pod) {
	t.Helper()
	seen := map[string]bool{}
	for _, agent := range agents {
		pid := cluster.ProcessOfPod(t, agent, "/agent keeper")
		ids := cluster.OnNode(t, agent.Spec.NodeName, "sh", "-c", fmt.Sprintf("grep -E '^(Uid|Gid|Groups):' /proc/%d/status", pid))
		own := agent.Labels[sondev1.LabelKeeperUser]
		if want := strings.ReplaceAll("Uid:\tN\tN\tN\tN\nGid:\tN\tN\tN\tN\nGroups:\tN \n", "N", own); own == "" || ids != want {
			t.Errorf("the keeper of Pod %s has\n%swant user and group %q alone", agent.Name, ids, own)
		}
		if seen[own] {
			t.Errorf("two keepers have user %s", own)
		}
		seen[own] = true
	}
}

// wantRestricted checks that a keeper's memory is unreadable, and that it says which restrictions are in force.
func wantRestricted(t *testing.T, agent *corev1.Pod) {
	t.Helper()
	pid := cluster.ProcessOfPod(t, agent, "/agent keeper")
	// The kernel gives /proc/PID of a process that is not dumpable to root (proc(5)).
	if owner := strings.TrimSpace(cluster.OnNode(t, agent.Spec.NodeName, "stat", "-c", "%u", fmt.Sprintf("/proc/%d/environ", pid))); owner != "0" {
		t.Errorf("the keeper's /proc entry belongs to user %s, want 0: its memory is readable for its user", owner)
	}
	var line string
	for l := range strings.Lines(logs(t, agent, captureconfig.ContainerKeeper)) {
		if strings.Contains(l, "Confining the keeper") {
			line = l
		}
	}
	t.Log(line)
	if !strings.Contains(line, `"landlock":0`) && !strings.Contains(line, `"files":true`) {
		t.Errorf("the keeper's log has %q, want its restrictions", line)
	}
}

// OpenShift chooses the manager's user. Its group is not root's.
func TestSccManagerGroup(t *testing.T) {
	for _, p := range cluster.ManagerPods(t) {
		pid := cluster.ProcessOfPod(t, &p, "/manager")
		groups := cluster.OnNode(t, p.Spec.NodeName, "sh", "-c", fmt.Sprintf("grep -E '^(Uid|Gid|Groups):' /proc/%d/status", pid))
		t.Logf("%s under %s:\n%s", p.Name, p.Annotations[annotationSCC], groups)
		if !strings.Contains(groups, "\nGid:\t65532\t65532\t65532\t65532\n") || p.Annotations[annotationSCC] != "restricted-v2" {
			t.Errorf("manager %s runs under %q as\n%swant group 65532", p.Name, p.Annotations[annotationSCC], groups)
		}
	}
}
