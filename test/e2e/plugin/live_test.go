//go:build e2e

package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/nodereport"
)

// interrupt sends Ctrl-C (SIGINT).
func interrupt(t *testing.T, cmd *osexec.Cmd) error {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	return cmd.Wait()
}

// The calls of the Pods appear on the screen while they happen, with the Pod's name, and afterwards in the file.
func TestPluginTraceLive(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	pods := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 2, "idle"), 2)
	file := filepath.Join(t.TempDir(), "files.ndjson")
	cmd, out, errOut := cluster.StartPlugin(t, "trace", "deploy/files", "-n", ns, "--for", "10m", "--name", "live", "--events", "process,file,io", "-o", file)
	tr := &sondev1.Trace{}
	tr.Namespace, tr.Name = ns, "live"
	cluster.AwaitCapturing(t, tr)
	for i := range pods {
		cluster.UseFiles(t, &pods[i])
		last := fmt.Sprintf("%s%d", cluster.FilesOf(pods[i].Name), cluster.FilesUsed-1)
		out.Await(t, 30*time.Second, last, pods[i].Name+"/c/")
	}
	if strings.Contains(out.String(), "Processes:") {
		t.Error("the summary was printed before the end")
	}
	if err := interrupt(t, cmd); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, errOut)
	}
	for _, want := range []string{"\nProcesses:\n", "\nSaved to " + file} {
		if n := strings.Count(out.String(), want); n != 1 {
			t.Errorf("want %q once, found it %d times in\n%s", want, n, out)
		}
	}
	if strings.Contains(out.String(), "were not shown") || strings.Contains(out.String(), "\x1b[") {
		t.Errorf("want all events, as there are few, and no escape sequences without a terminal:\n%s", out)
	}
}

// With JSON output programs read the same lines.
func TestPluginTraceLiveJSON(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	p := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 1, "idle"), 1)[0]
	t.Chdir(t.TempDir())
	cmd, out, errOut := cluster.StartPlugin(t, "trace", "deploy/files", "-n", ns, "--name", "json", "--events", "file", "-o", "json")
	tr := &sondev1.Trace{}
	tr.Namespace, tr.Name = ns, "json"
	cluster.AwaitCapturing(t, tr)
	cluster.UseFiles(t, &p)
	out.Await(t, 30*time.Second, `{"pod":"`+p.Name+`","podUid":"`+string(p.UID)+`","time":`, fmt.Sprintf(`%s%d"`, cluster.FilesOf(p.Name), cluster.FilesUsed-1))
	if err := interrupt(t, cmd); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, errOut)
	}
	header, records, end := cluster.ReadTrace(t, []byte(out.String()))
	if header == nil || end == nil || !end.Complete || end.Written != uint64(len(records)) {
		t.Errorf("got header %+v, %d events, account %+v, want a complete account of these events; the plugin printed\n%s", header, len(records), end, errOut)
	}
	if saved, err := filepath.Glob("files-*Z.ndjson"); err != nil || len(saved) != 1 {
		t.Errorf("saved the files %v (%v), want one", saved, err)
	}
}

// With --gate the plugin says when new Pods wait and how to create some, and shows the first calls of such a Pod.
func TestPluginGate(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "late", 1, "idle")
	cluster.ReadyPods(t, d, 1)
	file := filepath.Join(t.TempDir(), "late.ndjson")
	cmd, out, errOut := cluster.StartPlugin(t, "trace", "deploy/late", "-n", ns, "--name", "gated", "--events", "process,file", "--gate", "--gate-timeout", "2m", "-o", file)
	errOut.Await(t, time.Minute, "New Pods of Deployment/late wait until they are traced, for up to 2m each", "kubectl rollout restart -n "+ns+" deployment/late")
	fresh := cluster.RestartPods(t, d)
	out.Await(t, time.Minute, fresh[0].Name+"/c/1", " exec ")
	if err := interrupt(t, cmd); err != nil {
		t.Errorf("after Ctrl-C: %v\n%s", err, errOut)
	}
	if want := "Note: 1 Pod was traced from its first instruction and waited "; !strings.Contains(out.String(), want) {
		t.Errorf("found no %q in\n%s", want, out)
	}
}

// doctors returns the Pods that examine nodes.
func doctors(ctx context.Context, t *testing.T) []string {
	t.Helper()
	var list corev1.PodList
	if err := cluster.Admin.List(ctx, &list, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{"app.kubernetes.io/component": "doctor"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// The doctor reports for each node that everything these tests use works there, and leaves nothing behind.
func TestDoctor(t *testing.T) {
	names := cluster.NodeNames(t)
	cmd, out, errOut := cluster.StartPlugin(t, "doctor", "-o", "json")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errOut)
	}
	var reports []nodereport.Report
	if err := json.Unmarshal([]byte(out.String()), &reports); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	var examined []string
	for _, r := range reports {
		examined = append(examined, r.Node)
		for _, c := range r.Conclusions {
			if !c.Works && slices.Contains([]string{"packet captures", "traces", "gates"}, c.Part) {
				t.Errorf("%s: %s does not work: %s", r.Node, c.Part, c.Because)
			}
		}
	}
	slices.Sort(examined)
	slices.Sort(names)
	if !slices.Equal(examined, names) {
		t.Errorf("examined nodes %v, want %v", examined, names)
	}
	cmd, out, errOut = cluster.StartPlugin(t, "doctor", names[0])
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(out.String(), names[0]+": Linux ") || !strings.Contains(out.String(), "\ntraces ") {
		t.Errorf("%v\n%s\n%s", err, out, errOut)
	}
	t.Log(out.String())
	if left := doctors(t.Context(), t); len(left) > 0 {
		t.Errorf("doctor Pods are left: %v", left)
	}
}

// The plugin names the right that a user lacks. Interrupting the doctor, or naming an unknown node, leaves
// nothing behind.
func TestDoctorRefusedAndInterrupted(t *testing.T) {
	cmd, _, errOut := cluster.StartPlugin(t, "doctor", cluster.NodeNames(t)[0], "--as", "nobody")
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "you need get on deployments") {
		t.Errorf("without a right: %v\n%s", err, errOut)
	}
	cmd, _, errOut = cluster.StartPlugin(t, "doctor", "no-such-node")
	if err := cmd.Wait(); err == nil || !strings.Contains(errOut.String(), "there is no node no-such-node") {
		t.Errorf("of no node: %v\n%s", err, errOut)
	}
	cmd, _, _ = cluster.StartPlugin(t, "doctor")
	cluster.Eventually(t, 30*time.Second, "a doctor", func(ctx context.Context) error {
		if len(doctors(ctx, t)) == 0 {
			return fmt.Errorf("no Pod yet")
		}
		return nil
	})
	if err := interrupt(t, cmd); err == nil {
		t.Log("the doctor had already finished")
	}
	if left := doctors(t.Context(), t); len(left) > 0 {
		t.Errorf("doctor Pods are left: %v", left)
	}
}
