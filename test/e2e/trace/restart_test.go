//go:build e2e

package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// The trace follows a container that restarts: its exit, its new program and that program's calls are in the same file,
// under its name.
func TestTraceRestartedContainer(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	p := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 1, "idle"), 1)[0]
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	before, after := cluster.FilesOf(p.Name)+"before-", cluster.FilesOf(p.Name)+"after-"
	cluster.UseFilesAt(t, &p, before)
	killed := cluster.KillProcess(t, &p, "KILL", "/workload idle")
	cluster.Eventually(t, time.Minute, "the container started again", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(&p), &p); err != nil {
			return err
		}
		if c := mainContainer(&p); c.RestartCount != 1 || c.State.Running == nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	cluster.UseFilesAt(t, &p, after)
	cluster.Stop(t, tr)

	e := cluster.Entry(t, tr, p.Name)
	if tr.Status.Phase != sondev1.PhaseCompleted || len(e.Files) != 1 || e.LostEvents() > 0 {
		t.Fatalf("phase %s, entry %+v; want Completed, one file and no losses", tr.Status.Phase, e)
	}
	_, records, _ := cluster.ReadTrace(t, cluster.ResultFile(t, tr, cluster.GrantResults(t, cluster.Admin, tr), &e))
	want := map[string]int{"exec": cluster.FilesUsed, "openat": cluster.FilesUsed, "write": cluster.FilesUsed, "pread64": cluster.FilesUsed, "close": cluster.FilesUsed, "unlinkat": cluster.FilesUsed}
	for when, files := range map[string]string{"before": before, "after": after} {
		if diff := cmp.Diff(want, usesOf(records, files)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	ended := slices.IndexFunc(records, func(r *tracefmt.Record) bool {
		return r.Call == "exit" && r.HostTID == killed && r.Container == "c" && len(r.Args) == 1 && string(r.Args[0].Text) == "SIGKILL"
	})
	begun := slices.IndexFunc(records, func(r *tracefmt.Record) bool {
		return r.Call == "exec" && r.Container == "c" && r.PID == 1 && len(r.Args) == 1 && bytes.Equal(r.Args[0].Text, []byte("/workload\x00idle\x00"))
	})
	if ended < 0 || begun < ended {
		t.Errorf("among %d records the container's exit is number %d and its new program number %d, want both in this order", len(records), ended, begun)
	}
}

// Processes in a cgroup below the container's belong to the container.
func TestTraceCgroupBelow(t *testing.T) {
	const files = "/dev/shm/below-"
	ns := cluster.Namespace(t, nil)
	p := cluster.ReadyPods(t, cluster.Deployment(t, ns, "files", 1, "files", "-path", files, "-when-asked"), 1)[0]
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	pid := cluster.ProcessOfPod(t, &p, "/workload files")
	below := cgroupDir(t, &p, pid) + "/below"
	cluster.OnNode(t, p.Spec.NodeName, "sh", "-c", fmt.Sprintf("mkdir %[1]s %[1]s/again && echo %d >%[1]s/again/cgroup.procs", below, pid))
	if is := cgroupDir(t, &p, pid); is != below+"/again" {
		t.Fatalf("process %d is in cgroup %s, want %s", pid, is, below)
	}
	cluster.KillProcess(t, &p, "USR1", "/workload files")
	cluster.Eventually(t, time.Minute, "files used", func(ctx context.Context) error {
		text, err := cluster.Logs(ctx, &p)
		if err != nil {
			return err
		}
		var used struct{ Count int }
		if err := json.Unmarshal([]byte(text), &used); err != nil {
			return fmt.Errorf("it printed %q: %w", text, err)
		}
		if used.Count != cluster.FilesUsed {
			return fmt.Errorf("it used %d files", used.Count)
		}
		return nil
	})
	cluster.Stop(t, tr)
	e := cluster.Entry(t, tr, p.Name)
	_, records, _ := cluster.ReadTrace(t, cluster.ResultFile(t, tr, cluster.GrantResults(t, cluster.Admin, tr), &e))
	want := map[string]int{"exec": cluster.FilesUsed, "openat": cluster.FilesUsed, "write": cluster.FilesUsed, "pread64": cluster.FilesUsed, "close": cluster.FilesUsed, "unlinkat": cluster.FilesUsed}
	if diff := cmp.Diff(want, usesOf(records, files)); diff != "" || e.LostEvents() > 0 {
		t.Errorf("lost %v; (-want +got):\n%s", e.Lost, diff)
	}
}

// cgroupDir returns a process's cgroup folder on the node: with cgroup v1 the pids controller's.
func cgroupDir(t *testing.T, p *corev1.Pod, pid uint32) string {
	t.Helper()
	dir := ""
	for line := range strings.Lines(cluster.OnNode(t, p.Spec.NodeName, "cat", fmt.Sprintf("/proc/%d/cgroup", pid))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case slices.Contains(strings.Split(parts[1], ","), "pids"):
			return "/sys/fs/cgroup/pids" + parts[2]
		case parts[0] == "0":
			dir = "/sys/fs/cgroup" + parts[2]
		}
	}
	return dir
}
