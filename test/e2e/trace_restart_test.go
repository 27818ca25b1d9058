//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// A container that is started again is followed: its end, its new program, and what that does are in the same file, under its name.
func TestTraceRestartedContainer(t *testing.T) {
	ns := namespace(t, nil)
	p := readyPods(t, deployment(t, ns, "files", 1, "idle"), 1)[0]
	tr := trace(t, admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	before, after := filesOf(p.Name)+"before-", filesOf(p.Name)+"after-"
	useFilesAt(t, &p, before)
	killed := kill(t, &p, "KILL", "/workload idle")
	eventually(t, time.Minute, "the container started again", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(&p), &p); err != nil {
			return err
		}
		if c := mainContainer(&p); c.RestartCount != 1 || c.State.Running == nil {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	useFilesAt(t, &p, after)
	stop(t, tr)

	e := entry(t, tr, p.Name)
	if tr.Status.Phase != sondev1.PhaseCompleted || len(e.Files) != 1 || e.LostEvents() > 0 {
		t.Fatalf("phase %s, entry %+v", tr.Status.Phase, e)
	}
	_, records, _ := readTrace(t, resultFile(t, tr, grant(t, admin, tr), &e))
	want := map[string]int{"exec": filesUsed, "openat": filesUsed, "write": filesUsed, "pread64": filesUsed, "close": filesUsed, "unlinkat": filesUsed}
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
		t.Errorf("of %d records the container's end is number %d, its new program number %d", len(records), ended, begun)
	}
}

// What runs in a cgroup that lies below the container's is the container's.
func TestTraceCgroupBelow(t *testing.T) {
	const files = "/dev/shm/below-"
	ns := namespace(t, nil)
	p := readyPods(t, deployment(t, ns, "files", 1, "files", "-path", files, "-when-asked"), 1)[0]
	tr := trace(t, admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "5m", Events: allGroups})
	pid := processOfPod(t, &p, "/workload files")
	below := cgroupDir(t, &p, pid) + "/below"
	onNode(t, p.Spec.NodeName, "sh", "-c", fmt.Sprintf("mkdir %[1]s %[1]s/again && echo %d >%[1]s/again/cgroup.procs", below, pid))
	if is := cgroupDir(t, &p, pid); is != below+"/again" {
		t.Fatalf("process %d is in %s, not in %s", pid, is, below)
	}
	kill(t, &p, "USR1", "/workload files")
	eventually(t, time.Minute, "files used", func(ctx context.Context) error {
		text, err := printed(ctx, &p)
		if err != nil {
			return err
		}
		var used struct{ Count int }
		if err := json.Unmarshal([]byte(text), &used); err != nil {
			return fmt.Errorf("it said %q: %w", text, err)
		}
		if used.Count != filesUsed {
			return fmt.Errorf("it used %d", used.Count)
		}
		return nil
	})
	stop(t, tr)
	e := entry(t, tr, p.Name)
	_, records, _ := readTrace(t, resultFile(t, tr, grant(t, admin, tr), &e))
	want := map[string]int{"exec": filesUsed, "openat": filesUsed, "write": filesUsed, "pread64": filesUsed, "close": filesUsed, "unlinkat": filesUsed}
	if diff := cmp.Diff(want, usesOf(records, files)); diff != "" || e.LostEvents() > 0 {
		t.Errorf("lost %v; (-want +got):\n%s", e.Lost, diff)
	}
}

// kill sends a signal to the one process of a Pod whose command line begins so, and returns its number on the node.
func kill(t *testing.T, p *corev1.Pod, signal, command string) uint32 {
	t.Helper()
	pid := processOfPod(t, p, command)
	onNode(t, p.Spec.NodeName, "kill", "-"+signal, strconv.Itoa(int(pid)))
	return pid
}

// processOfPod finds the one process of a Pod whose command line begins so.
func processOfPod(t *testing.T, p *corev1.Pod, command string) uint32 {
	t.Helper()
	uid := string(p.UID)
	// The systemd driver writes a Pod's UID with other signs.
	list := fmt.Sprintf(`for p in /proc/[0-9]*; do grep -q -e %s -e %s $p/cgroup && echo "${p#/proc/} $(tr '\0' ' ' <$p/cmdline)"; done 2>/dev/null; true`,
		uid, strings.ReplaceAll(uid, "-", "_"))
	var found []uint32
	all := onNode(t, p.Spec.NodeName, "sh", "-c", list)
	for line := range strings.Lines(all) {
		number, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.ParseUint(number, 10, 32); err == nil && strings.HasPrefix(args, command) {
			found = append(found, uint32(pid))
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d processes of %s are %q: %s", len(found), p.Name, command, all)
	}
	return found[0]
}

// cgroupDir is where the node has a process's cgroup: with cgroup v1 that of the pids controller.
func cgroupDir(t *testing.T, p *corev1.Pod, pid uint32) string {
	t.Helper()
	dir := ""
	for line := range strings.Lines(onNode(t, p.Spec.NodeName, "cat", fmt.Sprintf("/proc/%d/cgroup", pid))) {
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
