package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/agents/node/recording"
)

// another container of the Pod, by the last digits of its number.
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

// holdAs holds a program in a container that has a name: as a kubelet has it, by the source of something that is mounted.
func (p *testPod) holdAs(t *testing.T, name string, args ...string) *held {
	t.Helper()
	source := filepath.Join(t.TempDir(), "pods", p.uid, "containers", name, "0a1b2c3d")
	if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(source, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `mount --bind "$0" "$0" && echo mounted >"$0" && read go && exec "$@"`
	h := p.hold(t, "", append([]string{"unshare", "--mount", "sh", "-c", script, source}, args...)...)
	if _, err := h.in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(source); err != nil || string(b) == "mounted\n" || time.Now().After(end) {
			if err != nil || len(b) == 0 {
				t.Fatalf("container %s: %q, %v: %s", name, b, err, h.out.String())
			}
			return h
		}
	}
}

// Of a Pod's containers only those that are named, also such as come during the trace, with what is done in their cgroups
// before anybody can know whose they are. Of the others nothing, and the kernel does not tell of them any more.
func TestContainers(t *testing.T) {
	web := newTestPod(t, testUID)
	log, late, lateLog := web.another(t, "b1"), web.another(t, "b2"), web.another(t, "b3")
	in := map[string]*held{"web": web.holdAs(t, "web", "/bin/cat", "/etc/hostname"), "log": log.holdAs(t, "log", "/bin/cat", "/etc/hosts")}
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupProcess, GroupFile, GroupIO}, Containers: []string{"late", "web", "none"}})
	in["late"], in["late-log"] = late.holdAs(t, "late", "/bin/cat", "/etc/group"), lateLog.holdAs(t, "late-log", "/bin/cat", "/etc/passwd")
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
		if l.HostPID == in["late"].cmd.Process.Pid && l.Call == eventExec && strings.HasSuffix(l.Path, "/unshare") {
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
			t.Errorf("container %s, which nobody asked for, has lines: opened %v", name, opened[pid])
		}
	}
	if before != 1 {
		t.Error("nothing of what was done in the cgroup of container late before it had its name")
	}
	if a := r.result.Account; a.Lost() > 0 || a.Written != uint64(len(lines)) {
		t.Errorf("%d lines, account %+v", len(lines), a)
	}
}

// awaitLeftOut waits until the kernel leaves out so many cgroups.
func awaitLeftOut(t *testing.T, tr *Trace, want int) {
	t.Helper()
	var cgroup uint64
	var one uint8
	n := 0
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		n = 0
		for all := tr.program.objects.Maps[traceMapLeftOut].Iterate(); all.Next(&cgroup, &one); {
			n++
		}
		if n == want {
			return
		}
	}
	t.Fatalf("the kernel leaves out %d cgroups, want %d", n, want)
}

// What nobody can know to be another's is written: here of a cgroup whose processes have the root of the node.
func TestContainerThatNobodyKnows(t *testing.T) {
	pod := newTestPod(t, testUID)
	h := pod.hold(t, "", "/bin/cat", "/etc/hostname")
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupFile}, Containers: []string{"web"}})
	h.run()
	if lines := r.stop(); !slices.ContainsFunc(lines, func(l line) bool { return l.Path == "/etc/hostname" && l.Container == "" }) {
		t.Errorf("nothing of it in %d lines", len(lines))
	}
}

// A sandbox has its own root, and no name.
func TestWhose(t *testing.T) {
	var (
		node    = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
		own     = "790 700 0:52 / / rw - overlay overlay rw\n"
		log     = "812 790 8:1 /var/lib/kubelet/pods/" + testUID + "/containers/web/5f3a9c11 /dev/termination-log rw - ext4 /dev/sda1 rw\n"
		inPod   = "0::/kubepods/pod" + testUID + "/" + testContainer + "\n"
		monitor = "0::/kubepods.slice/kubepods-pod" + strings.ReplaceAll(testUID, "-", "_") + ".slice/crio-conmon-" + testContainer + ".scope\n"
	)
	for name, tc := range map[string]struct {
		mounts, cgroup, node string
		want                 string
		sure                 bool
	}{
		"a container":                {mounts: own + log, cgroup: inPod, node: node, want: "web", sure: true},
		"one that is being prepared": {mounts: node, cgroup: inPod, node: node},
		"nearly prepared":            {mounts: node + log, cgroup: inPod, node: node, want: "web", sure: true},
		"a sandbox":                  {mounts: own, cgroup: inPod, node: node, sure: true},
		"a sandbox over the node's":  {mounts: node + own, cgroup: inPod, node: node, sure: true},
		"a runtime's monitor":        {mounts: node, cgroup: monitor, node: node, sure: true},
		"gone":                       {node: node},
		"a node that nobody sees":    {mounts: own, cgroup: inPod},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			for path, text := range map[string]string{"7/mountinfo": tc.mounts, "7/cgroup": tc.cgroup, "1/mountinfo": tc.node} {
				if text == "" {
					continue
				}
				if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, path)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(proc, path), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, sure := newResolver(proc).whose(7); got != tc.want || sure != tc.sure {
				t.Errorf("%q, %t, want %q, %t", got, sure, tc.want, tc.sure)
			}
		})
	}
}

// holding is a trace of containers without a kernel, which writes to text.
func holding(text *bytes.Buffer) (*Trace, *stream) {
	t := &Trace{only: newSelection([]string{"web"}), resolver: newResolver("/nowhere")}
	s := &stream{out: sinkFunc(func(lines []byte, _ int) (int, error) {
		text.Write(lines)
		return bytes.Count(lines, newline), nil
	})}
	t.streams = map[string]*stream{"": s}
	return t, s
}

// heldAt is an event of a cgroup at a time.
func heldAt(cgroup, at uint64) *event {
	return &event{record: &traceRecord{Cgroup: cgroup, Time: at}}
}

// What waits for one cgroup holds up all that came after it, and nothing that came before; it keeps the order.
func TestHold(t *testing.T) {
	const web, log, dead = 11, 12, 13
	var text bytes.Buffer
	tr, s := holding(&text)
	put := func(cgroup, at uint64, line string) {
		tr.only.of(cgroup)
		tr.hold(heldAt(cgroup, at), s, []byte(line+"\n"))
	}
	put(web, 1, "web 1")
	put(log, 2, "log 2")
	put(web, 3, "web 3")
	put(dead, 4, "dead 4")
	put(web, 5, "web 5")
	written := func(now uint64, want string) {
		t.Helper()
		tr.release(now)
		tr.flushAll()
		if diff := cmp.Diff(want, text.String()); diff != "" {
			t.Errorf("at %d (-want +got):\n%s", now, diff)
		}
	}
	written(5, "")
	tr.only.decide(web, "web")
	written(5, "web 1\n")
	tr.only.decide(log, "log")
	written(5, "web 1\nweb 3\n")
	tr.only.open[dead] = false // it has no process any more
	written(5, "web 1\nweb 3\ndead 4\nweb 5\n")
	put(dead, 6, "dead 6")
	written(5+holdFor, "web 1\nweb 3\ndead 4\nweb 5\n")
	written(6+holdFor, "web 1\nweb 3\ndead 4\nweb 5\ndead 6\n")
	if tr.only.bytes != 0 || len(tr.only.queue) != 0 || tr.account.Written != 5 {
		t.Errorf("%d bytes in %d events are held, %d written", tr.only.bytes, len(tr.only.queue), tr.account.Written)
	}
}

// What is held is bounded, and counted where it cannot be written.
func TestHoldIsBounded(t *testing.T) {
	var text bytes.Buffer
	tr, s := holding(&text)
	line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
	for i := range uint64(20) {
		tr.only.of(11)
		tr.hold(heldAt(11, i), s, line)
		if tr.only.bytes > holdBytes {
			t.Fatalf("%d bytes are held", tr.only.bytes)
		}
	}
	if text.Len()+tr.only.bytes != 20*len(line) || len(tr.only.queue) != holdBytes/len(line) {
		t.Errorf("%d bytes written, %d held in %d events", text.Len(), tr.only.bytes, len(tr.only.queue))
	}
	left := uint64(len(tr.only.queue))
	tr.lose()
	if a := tr.account; a.LostWriter != left || a.Written != 20-left {
		t.Errorf("%+v, %d were held", a, left)
	}
}

// A limit of events counts what is written, not what is held.
func TestHoldWithALimit(t *testing.T) {
	var text bytes.Buffer
	tr, s := holding(&text)
	tr.cfg.MaxEvents = 2
	for i := range uint64(4) {
		tr.only.of(11)
		tr.hold(heldAt(11, i), s, []byte("x\n"))
	}
	if tr.end != "" {
		t.Error("it has ended before anything was written")
	}
	tr.only.decide(11, "web")
	tr.release(4)
	if tr.end != recording.EventLimit || text.String() != "x\nx\n" || tr.account.BeyondLimit != 2 {
		t.Errorf("end %q, written %q, %+v", tr.end, text.String(), tr.account)
	}
}

func TestSelectionIsBounded(t *testing.T) {
	s := newSelection([]string{"web"})
	for i := range uint64(3 * maxProcesses) {
		s.of(i)
		s.decide(i, "log")
		s.of(1<<32 + i)
	}
	if len(s.known) > maxProcesses || len(s.open) > maxUnsettled {
		t.Errorf("%d known, %d open", len(s.known), len(s.open))
	}
	if all := newSelection(nil); all.of(7) != wanted || len(all.open) > 0 {
		t.Error("where all are asked for, one has to be known first")
	}
}
