package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// another makes a container of the Pod whose ID ends with these digits.
func (p *testPod) another(t *testing.T, digits string) *testPod {
	t.Helper()
	c := &testPod{uid: p.uid, dir: filepath.Join(filepath.Dir(p.dir), testContainer[:len(testContainer)-len(digits)]+digits)}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeCgroup(c.dir); err != nil {
			t.Error(err)
		}
	})
	return c
}

// nodeRoot makes the root directory of a node, with the directory of the kubelet's links to logs.
func nodeRoot(tb testing.TB) string {
	tb.Helper()
	root := tb.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var", "log", "containers"), 0o755); err != nil {
		tb.Fatal(err)
	}
	return root
}

// named makes the link by which the kubelet names the container.
func (p *testPod) named(t *testing.T, root, name string) *testPod {
	t.Helper()
	link := filepath.Join(root, "var", "log", "containers", "web-0_shop_"+name+"-"+filepath.Base(p.dir)+".log")
	if err := os.WriteFile(link, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// holdAs holds a program in a mount namespace like a container's: the source of a mount has the container's name.
func (p *testPod) holdAs(t *testing.T, name string, args ...string) *held {
	t.Helper()
	source := filepath.Join(t.TempDir(), "pods", p.uid, "containers", name, "0a1b2c3d")
	if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
		t.Fatal(err)
	}
	return p.holdMounted(t, source, `mount --bind "$0" "$0" && echo mounted >"$0" && read go && exec "$@"`, args...)
}

// holdHidden holds a program that has left its container's mounts: it has a mount namespace and a root of its own.
func (p *testPod) holdHidden(t *testing.T, args ...string) *held {
	t.Helper()
	const script = `exec 3>"$0" && root=${0%/*} && mount -t tmpfs tmpfs "$root" &&
for d in bin lib lib64 usr etc; do [ ! -d /$d ] || { mkdir "$root/$d" && mount --bind /$d "$root/$d"; } || exit; done
exec chroot "$root" /bin/sh -c 'echo mounted >&3 && read go && exec "$@"' sh "$@"`
	return p.holdMounted(t, filepath.Join(t.TempDir(), "mounted"), script, args...)
}

// holdMounted holds a program in a mount namespace of its own. The script tells a file, $0, that its mounts are there.
func (p *testPod) holdMounted(t *testing.T, source, script string, args ...string) *held {
	t.Helper()
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := p.hold(t, "", append([]string{"unshare", "--mount", "sh", "-c", script, source}, args...)...)
	if _, err := h.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(source); err != nil || string(b) == "mounted\n" || time.Now().After(end) {
			if err != nil || len(b) == 0 {
				t.Fatalf("%s: %q, %v: %s", source, b, err, h.out.String())
			}
			return h
		}
	}
}

// Only selected containers are recorded, including ones that start during the trace, and events of their cgroups before
// their names are known. The kernel no longer records the others.
func TestContainers(t *testing.T) {
	t.Parallel()
	web := newTestPod(t)
	log, late, lateLog := web.another(t, "b1"), web.another(t, "b2"), web.another(t, "b3")
	root := nodeRoot(t)
	web.named(t, root, "web")
	log.named(t, root, "log")
	in := map[string]*held{"web": web.holdAs(t, "web", "/bin/cat", "/etc/hostname"), "log": log.holdAs(t, "log", "/bin/cat", "/etc/hosts")}
	r := start(t, &Config{PodUID: web.uid, NodeRoot: root, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO}, Containers: []string{"late", "web", "none"}})
	in["late"], in["late-log"] = late.holdAs(t, "late", "/bin/cat", "/etc/group"), lateLog.holdAs(t, "late-log", "/bin/cat", "/etc/passwd")
	late.named(t, root, "late") // the kubelet makes the link after the container's start
	lateLog.named(t, root, "late-log")
	awaitLeftOut(t, r.trace, 2)
	for _, h := range in {
		h.run()
	}
	opened, names, before := map[int][]string{}, map[int][]string{}, 0
	lines := r.stop()
	for i := range lines {
		l := &lines[i]
		if l.Call == "openat" {
			opened[l.HostPID] = append(opened[l.HostPID], l.Path)
		}
		if !slices.Contains(names[l.HostPID], l.Container) {
			names[l.HostPID] = append(names[l.HostPID], l.Container)
		}
		if l.HostPID == in["late"].cmd.Process.Pid && l.Call == decode.EventExec && strings.HasSuffix(l.Path, "/unshare") {
			before++
		}
		if i > 0 && l.Time < lines[i-1].Time {
			t.Errorf("line %d is earlier than the one before", i)
		}
	}
	for name, want := range map[string]string{"web": "/etc/hostname", "late": "/etc/group"} {
		if pid := in[name].cmd.Process.Pid; !slices.Contains(opened[pid], want) || !slices.Contains(names[pid], name) {
			t.Errorf("container %s: opened %v under the names %q", name, opened[pid], names[pid])
		}
	}
	for _, name := range []string{"log", "late-log"} {
		if pid := in[name].cmd.Process.Pid; len(names[pid]) > 0 {
			t.Errorf("container %s, which is not selected, has lines: opened %v", name, opened[pid])
		}
	}
	if before != 1 {
		t.Error("no event of container late's cgroup before it had its name")
	}
	if a := r.result.Account; a.Lost() > 0 || a.Written != uint64(len(lines)) {
		t.Errorf("%d lines, account %+v", len(lines), a)
	}
}

// awaitLeftOut waits until the kernel excludes so many cgroups.
func awaitLeftOut(t *testing.T, tr *Trace, want int) {
	t.Helper()
	var cgroup uint64
	var one uint8
	n := 0
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n = 0
		for all := tr.program.Objects.Maps["excluded"].Iterate(); all.Next(&cgroup, &one); {
			n++
		}
		if n == want {
			return
		}
	}
	t.Fatalf("the kernel leaves out %d cgroups, want %d", n, want)
}

// Events of a cgroup whose container is not known are written: here the kubelet has no link for it.
func TestUnknownContainer(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	h := pod.hold(t, "", "/bin/cat", "/etc/hostname")
	r := start(t, &Config{PodUID: pod.uid, NodeRoot: nodeRoot(t), Groups: []decode.Group{decode.GroupFile}, Containers: []string{"web"}})
	h.run()
	if lines := r.stop(); !slices.ContainsFunc(lines, func(l line) bool { return l.Path == "/etc/hostname" && l.Container == "" }) {
		t.Errorf("no event of it in %d lines", len(lines))
	}
}

// A process cannot hide from the trace, or pass for another container's, by its mounts: the kubelet's name of its cgroup's
// container counts.
func TestHiddenContainer(t *testing.T) {
	t.Parallel()
	unknown, root := newTestPod(t), nodeRoot(t)
	web, log := unknown.another(t, "b1").named(t, root, "web"), unknown.another(t, "b2").named(t, root, "log")
	args := []string{"/bin/cat", "/etc/hostname"}
	written := map[string]*held{
		"web without its mounts":     web.holdHidden(t, args...),
		"web with log's mount":       web.holdAs(t, "log", args...),
		"unknown, with log's mount":  unknown.holdAs(t, "log", args...),
		"unknown, without its mount": unknown.holdHidden(t, args...),
	}
	leftOut := map[string]*held{
		"log without its mounts": log.holdHidden(t, args...),
		"log with web's mount":   log.holdAs(t, "web", args...),
	}
	r := start(t, &Config{PodUID: unknown.uid, NodeRoot: root, Groups: []decode.Group{decode.GroupFile}, Containers: []string{"web"}})
	for _, all := range []map[string]*held{written, leftOut} {
		for _, h := range all {
			h.run()
		}
	}
	lines := r.stop()
	has := func(h *held, with func(*line) bool) bool {
		return slices.ContainsFunc(lines, func(l line) bool { return l.HostPID == h.cmd.Process.Pid && with(&l) })
	}
	for name, h := range written {
		if !has(h, func(l *line) bool { return l.Path == "/etc/hostname" }) {
			t.Errorf("%s: no event of it in %d lines", name, len(lines))
		}
		if strings.HasPrefix(name, "web") && has(h, func(l *line) bool { return l.Container != "web" }) {
			t.Errorf("%s: events under another name", name)
		}
	}
	for name, h := range leftOut {
		if has(h, func(*line) bool { return true }) {
			t.Errorf("%s: events of it", name)
		}
	}
	if a := r.result.Account; a.Lost() > 0 || a.Written != uint64(len(lines)) {
		t.Errorf("%d lines, account %+v", len(lines), a)
	}
}

// A sandbox does nothing for most of its life: meanwhile its cgroup is not checked, which would read all processes of the node.
func TestQuietCgroupIsNotChecked(t *testing.T) {
	t.Parallel()
	pod, root := newTestPod(t), nodeRoot(t)
	h := pod.hold(t, "", "/bin/cat", "/etc/hostname")
	var text bytes.Buffer
	tr, err := Open(&Config{
		PodUID: pod.uid, NodeRoot: root, Groups: []decode.Group{decode.GroupFile}, Containers: []string{"web"},
		Out: sinkFunc(func(lines []byte, _ int) (int, error) { text.Write(lines); return bytes.Count(lines, newline), nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	if err := tr.merge(kernel.BootTime()); err != nil || len(tr.containers.undecided) != 1 || tr.containers.checked != 0 {
		t.Fatalf("%v; %+v, want one undecided cgroup that was not checked since the start", err, tr.containers)
	}
	pod.named(t, root, "web")
	h.run()
	if err := tr.merge(kernel.BootTime()); err != nil || tr.containers.checked == 0 {
		t.Errorf("%v; %+v, want a check after its events", err, tr.containers)
	}
}

// A process that has ended leaves its container undecided: cgroup v1 shows the root as its cgroup, as if it were in no container.
func TestEndedProcessDecidesNothing(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	ended := pod.hold(t, "", "/bin/true")
	tr, err := Open(&Config{
		PodUID: pod.uid, NodeRoot: nodeRoot(t), Groups: []decode.Group{decode.GroupFile}, Containers: []string{"web"},
		Out: sinkFunc(func(_ []byte, events int) (int, error) { return events, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close() })
	if _, err := ended.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Waitid(unix.P_PID, ended.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := tr.resolve(); err != nil || len(tr.containers.undecided) != 1 || len(tr.containers.decided) != 0 {
		t.Errorf("%v; %+v, want one undecided cgroup", err, tr.containers)
	}
}

// holding returns a trace of one container without BPF programs, which writes to text.
func holding(text *bytes.Buffer, maxEvents uint64) *Trace {
	return newTrace(&Config{Containers: []string{"web"}, Proc: "/nowhere", MaxEvents: maxEvents, Out: sinkFunc(func(lines []byte, _ int) (int, error) {
		text.Write(lines)
		return bytes.Count(lines, newline), nil
	})})
}

// heldAt returns a record of a cgroup at a time.
func heldAt(cgroup, at uint64) *kernel.Head {
	return &kernel.Head{Cgroup: cgroup, Time: at}
}

// An undecided cgroup delays the events after its first one, and keeps their order.
func TestHold(t *testing.T) {
	const web, log, dead = 11, 12, 13
	var text bytes.Buffer
	tr := holding(&text, 0)
	put := func(cgroup, at uint64, line string) {
		tr.containers.decisionOf(cgroup)
		tr.hold(heldAt(cgroup, at), tr.single, []byte(line+"\n"))
	}
	put(web, 1, "web 1")
	put(log, 2, "log 2")
	put(web, 3, "web 3")
	put(dead, 4, "dead 4")
	put(web, 5, "web 5")
	written := func(now uint64, want string) {
		t.Helper()
		tr.release(now)
		tr.out.Flush()
		if diff := cmp.Diff(want, text.String()); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", now, diff)
		}
	}
	written(5, "")
	tr.containers.decide(web, "web")
	written(5, "web 1\n")
	tr.containers.decide(log, "log")
	written(5, "web 1\nweb 3\n")
	tr.containers.undecided[dead] = false // it has no more processes
	written(5, "web 1\nweb 3\ndead 4\nweb 5\n")
	put(dead, 6, "dead 6")
	written(5+maxHeldTime, "web 1\nweb 3\ndead 4\nweb 5\n")
	written(6+maxHeldTime, "web 1\nweb 3\ndead 4\nweb 5\ndead 6\n")
	if tr.held.bytes != 0 || len(tr.held.queue) != 0 || tr.out.Counts().Written != 5 {
		t.Errorf("%d bytes in %d events are held, %d written", tr.held.bytes, len(tr.held.queue), tr.out.Counts().Written)
	}
}

// Held events are bounded, and counted if they cannot be written.
func TestHoldIsBounded(t *testing.T) {
	var text bytes.Buffer
	tr := holding(&text, 0)
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for i := range uint64(20) {
		tr.containers.decisionOf(11)
		tr.hold(heldAt(11, i), tr.single, line)
		if tr.held.bytes > maxHeldBytes {
			t.Fatalf("%d bytes are held", tr.held.bytes)
		}
	}
	if n := len(tr.held.queue); text.Len()+n*len(line) != 20*len(line) || n != maxHeldBytes/tr.held.queue[0].size() {
		t.Errorf("%d bytes written, %d held in %d events", text.Len(), tr.held.bytes, n)
	}
	left := uint64(len(tr.held.queue))
	tr.out.Close(tr.held.drop())
	if a := tr.Account(); a.LostWriter != left || a.Written != 20-left {
		t.Errorf("%+v, %d were held", a, left)
	}
}

// Short lines take more memory than their bytes.
func TestHoldOfShortLines(t *testing.T) {
	var text bytes.Buffer
	tr := holding(&text, 0)
	tr.containers.decisionOf(11)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range uint64(maxHeldBytes / 32) {
		tr.hold(heldAt(11, i), tr.single, append(make([]byte, 0, 64), "x\n"...))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int(after.HeapAlloc) - int(before.HeapAlloc); took > maxHeldBytes*3/2 {
		t.Errorf("%d held events take %d bytes", len(tr.held.queue), took)
	}
	runtime.KeepAlive(tr)
}

// A limit of events counts written events, not held ones.
func TestHoldWithALimit(t *testing.T) {
	var text bytes.Buffer
	tr := holding(&text, 2)
	for i := range uint64(4) {
		tr.containers.decisionOf(11)
		tr.hold(heldAt(11, i), tr.single, []byte("x\n"))
	}
	if tr.out.End() != "" {
		t.Error("it has ended before anything was written")
	}
	tr.containers.decide(11, "web")
	tr.release(4)
	if tr.out.End() != recording.EventLimit || text.String() != "x\nx\n" || tr.Account().BeyondLimit != 2 {
		t.Errorf("end %q, written %q, %+v", tr.out.End(), text.String(), tr.Account())
	}
}

func TestSelectionIsBounded(t *testing.T) {
	s := newSelection([]string{"web"})
	for i := range uint64(3 * maxDecided) {
		s.decisionOf(i)
		s.decide(i, "log")
		s.decisionOf(1<<32 + i)
	}
	if len(s.decided) > maxDecided || len(s.undecided) > maxUndecided {
		t.Errorf("%d known, %d open", len(s.decided), len(s.undecided))
	}
	if all := newSelection(nil); all.decisionOf(7) != included || len(all.undecided) > 0 {
		t.Error("a trace of all containers waits for a name")
	}
}
