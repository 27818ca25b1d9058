package trace

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/output"
	"github.com/sonde-operator/sonde/test/privileged"
)

// uringGroups are all groups that have operations of io_urings.
var uringGroups = []decode.Group{decode.GroupFile, decode.GroupIO, decode.GroupNetwork, decode.GroupMemory}

// isOperation reports whether a line is an operation of an io_uring; calls about io_urings have such names, too.
func (l *line) isOperation() bool {
	return strings.HasPrefix(l.Call, "io_uring_") && l.arg("userData") != ""
}

// operationsOf describes the operations of a trace: their names, paths, results, and lengths.
func operationsOf(lines []line, dir string) []string {
	var all []string
	for _, l := range lines {
		if !l.isOperation() {
			continue
		}
		name := strings.TrimPrefix(l.Call, "io_uring_")
		text := name
		for _, key := range []string{"count", "len"} {
			if n := l.arg(key); n != "" && name != "accept" {
				text += " of " + n
			}
		}
		if l.Path != "" {
			path := strings.Replace(l.Path, dir, "DIR", 1)
			if kind, _, connected := strings.Cut(path, ":"); connected {
				path = kind // without its port
			}
			text += " " + path
		}
		if l.is("fixed", "true") {
			text += " fixed " + l.arg("fd")
		}
		if at := l.arg("fileIndex"); at != "" {
			text += " into " + at
		}
		switch {
		case l.Errno != "":
			text += " = " + l.Errno
		case l.Ret == nil:
			text += " without a result"
		case *l.Ret > 2 && strings.HasSuffix(name, "accept"), *l.Ret > 2 && strings.HasPrefix(name, "open"):
			text += " = a descriptor"
		default:
			text += " = " + strconv.FormatInt(*l.Ret, 10)
		}
		all = append(all, text)
	}
	return all
}

var usedOperations = []string{
	"openat DIR/file = a descriptor",
	"write of 9 DIR/file = 9",
	"read of 18 DIR/file = 9",
	"send of 9 tcp = 9",
	"recv of 18 tcp = 9",
	"close DIR/file = 0",
	"openat /nowhere/to/be found = ENOENT",
	"openat = EFAULT",
}

var multishotOperations = []string{"accept tcp = a descriptor", "accept tcp = a descriptor", "accept tcp = ECANCELED"}

// startedBy returns the lines of a process and of those that it started, by their forks.
func startedBy(lines []line, pid int) (all []line) {
	its := map[string]bool{strconv.Itoa(pid): true}
	for _, l := range lines {
		if l.Call == decode.EventFork && its[l.arg("parentHostPid")] {
			its[strconv.Itoa(l.HostPID)] = true
		}
		if its[strconv.Itoa(l.HostPID)] {
			all = append(all, l)
		}
	}
	return all
}

// A program uses files and sockets by an io_uring only: each operation is recorded, whichever thread submits or ends it. One
// trace has all variants, because loading its programs takes longer than all of them.
func TestIOUring(t *testing.T) {
	t.Parallel()
	program := compile(t, "uring.c")
	variants := map[string][]string{
		"plain":  usedOperations,
		"sqpoll": usedOperations,
		"async":  usedOperations,
		// Results come when the thread asks for them.
		"deferred": usedOperations,
		// Entries are of 128 bytes.
		"large":  usedOperations,
		"forked": usedOperations,
		"passed": usedOperations,
		"linked": {
			"openat DIR/file into 2 = 0",
			"write of 9 fixed 1 = 9",
			"read of 9 fixed 1 = 9",
			"close fixed 1 = 0",
			"openat /nowhere/to/be found = ENOENT",
			"write of 9 fixed 1 = ECANCELED",
		},
		"silent": {
			"openat DIR/file without a result",
			"openat /nowhere/to/be found without a result",
			"openat /nowhere/to/be found = ENOENT",
		},
		"overflow":  slices.Repeat([]string{"openat DIR/file = ENOENT"}, 24),
		"multishot": multishotOperations,
		// The numbers of operations whose results never come are used again.
		"reused": append([]string{"openat DIR/file without a result"}, multishotOperations...),
	}
	pod := newTestPod(t)
	privileged.RegisterFiles(t)
	processes := map[string]*held{}
	for variant := range variants {
		processes[variant] = pod.hold(t, "", program, variant, "file")
	}
	r := start(t, &Config{PodUID: pod.uid, Groups: append([]decode.Group{decode.GroupProcess}, uringGroups...), Durations: true})
	for _, h := range processes {
		h.run()
	}
	lines := r.stop()
	if a := r.result.Account; a.Lost() > 0 {
		t.Errorf("%+v", a)
	}
	checked := 0
	for variant, want := range variants {
		h := processes[variant]
		its := startedBy(lines, h.cmd.Process.Pid)
		got := operationsOf(its, h.cmd.Dir)
		checked += len(got)
		t.Run(variant, func(t *testing.T) {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			for _, l := range its {
				if !l.isOperation() {
					continue
				}
				if l.HostPID == 0 || l.Comm == "" || l.Ret != nil && (l.LatencyNs == nil || *l.LatencyNs <= 0) {
					t.Errorf("its process or duration is missing: %+v", l)
				}
			}
		})
	}
	if all := len(operationsOf(lines, "")); all != checked {
		t.Errorf("%d operations, %d of them by a variant's processes", all, checked)
	}
}

// An operation that takes effect, but whose result its process never takes, is recorded at the end of the trace. So is one that
// waits: no record tells them apart. FLAP has them, too. Linux 6.1 gives the result at once.
func TestIOUringUnfetched(t *testing.T) {
	t.Parallel()
	program := compile(t, "uring.c")
	pod := newTestPod(t)
	for _, format := range []string{"NDJSON", "FLAP"} {
		t.Run(format, func(t *testing.T) {
			h := pod.hold(t, "", program, "unfetched", "file")
			cfg := &Config{PodUID: pod.uid, Groups: uringGroups, Durations: true}
			var flap strings.Builder
			if format == "FLAP" {
				sink := sinkFunc(func(lines []byte, events int) (int, error) {
					flap.Write(lines)
					return events, nil
				})
				cfg.Flap = map[string]output.Sink{"io": sink, "memory": sink}
			}
			r := start(t, cfg)
			if _, err := h.in.Write([]byte("go\n")); err != nil {
				t.Fatal(err)
			}
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if _, err := os.Stat(filepath.Join(h.cmd.Dir, "file")); err == nil {
					break
				}
			}
			if format == "FLAP" {
				r.cancel()
				<-r.done
				calls := readFlap(t, flap.String())
				var got []string
				for _, c := range calls {
					if name, ok := strings.CutPrefix(c.enter.Call, "io_uring_"); ok && (name == "openat" || c.exit.Args["ret"] == "") {
						got = append(got, name)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff([]string{"openat", "read"}, got); diff != "" || r.result.Account.Written != uint64(len(calls)) {
					t.Errorf("%d calls, %+v, operations without a result (-want +got):\n%s", len(calls), r.result, diff)
				}
				return
			}
			lines := r.stop()
			got := operationsOf(lines, h.cmd.Dir)
			slices.Sort(got)
			for i, op := range got {
				got[i] = strings.Replace(op, "file = a descriptor", "file without a result", 1)
			}
			if diff := cmp.Diff([]string{"openat DIR/file without a result", "read of 9 without a result"}, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			if a := r.result.Account; a.Lost() > 0 || lines[len(lines)-1].LatencyNs == nil {
				t.Errorf("%+v, the last line %+v", a, lines[len(lines)-1])
			}
		})
	}
}

// awaitNoMarks waits until no thread is marked as one of the command: the kernel's threads may end after their process.
func awaitNoMarks(t *testing.T, tr *Trace) {
	t.Helper()
	var tid, mark uint32
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		all := tr.program.Objects.Maps["marks"].Iterate()
		if !all.Next(&tid, &mark) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("thread %d has ended and has mark %d", tid, mark)
		}
	}
}

// The threads that the kernel adds to a process for its ring belong to the process's command, and to its cgroup, even after the
// process's first thread has ended.
func TestIOUringOfACommand(t *testing.T) {
	t.Parallel()
	program := compile(t, "uring.c")
	for _, variant := range []string{"sqpoll", "async", "orphaned"} {
		t.Run(variant, func(t *testing.T) {
			pod := newTestPod(t)
			other := filepath.Join(t.TempDir(), "other")
			b, err := os.ReadFile(program)
			if err == nil {
				err = os.WriteFile(other, b, 0o700)
			}
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			wanted, unwanted := pod.hold(t, "", program, variant, filepath.Join(dir, "file")), pod.hold(t, "", other, variant, "other")
			r := start(t, &Config{PodUID: pod.uid, Groups: uringGroups, Durations: true, Command: &kernel.Command{Name: "uring"}})
			unwanted.run()
			wanted.run()
			awaitNoMarks(t, r.trace)
			lines := r.stop()
			if diff := cmp.Diff(usedOperations, operationsOf(lines, dir)); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			if a := r.result.Account; a.Lost() > 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}

// A slow reader loses operations, and counts each: at its submission, at its end, or at both.
func TestIOUringOverload(t *testing.T) {
	t.Parallel()
	const n = 100_000
	pod := newTestPod(t)
	h := pod.hold(t, "", compile(t, "uring.c"), "many", "unused")
	var read, incomplete uint64
	r := start(t, &Config{
		PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, RingBytes: 1,
		Out: sinkFunc(func(lines []byte, _ int) (int, error) {
			for line := range bytes.Lines(lines) {
				if bytes.Contains(line, []byte(`"call":"io_uring_read"`)) {
					read++
					if !bytes.Contains(line, []byte(`"count":1`)) {
						incomplete++
					}
				}
			}
			time.Sleep(5 * time.Millisecond) // a slow disk
			return bytes.Count(lines, newline), nil
		}),
	})
	h.run()
	r.cancel()
	<-r.done
	a := r.result.Account
	t.Logf("%d reads, %d of them without arguments; %+v", read, incomplete, a)
	if lost := a.LostCalls[decode.EventUring]; r.result.Err != nil || read+lost < n || read > n || read+lost > 2*n || lost < incomplete || lost < n/10 {
		t.Errorf("%+v: %d reads and %d lost records, want %d reads in all, and losses", r.result, read, lost, n)
	}
}

// Where the kernel's tracepoints are not known, each submitted operation counts as lost, and each ring, because its process
// may need no call to submit.
func TestIOUringUnrecorded(t *testing.T) {
	t.Parallel()
	program := compile(t, "uring.c")
	for variant, want := range map[string]uint64{"plain": uint64(len(usedOperations)) + 1, "overflow": 24 + 1} {
		t.Run(variant, func(t *testing.T) {
			pod := newTestPod(t)
			h := pod.hold(t, "", program, variant, "file")
			cgroup, err := kernel.FindCgroup("/proc", h.cmd.Process.Pid, pod.uid)
			if err != nil {
				t.Fatal(err)
			}
			cpus, err := ebpf.PossibleCPU()
			if err != nil {
				t.Fatal(err)
			}
			p, err := kernel.Load(&kernel.Config{
				Cgroup: cgroup, Calls: decode.Calls([]decode.Group{decode.GroupFile}).Rows(), RingBytes: kernel.MinRing * cpus, CPUs: cpus,
				Tracepoints: kernel.Tracepoints{Missing: []kernel.Kind{kernel.KindUringEnd}},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			if err := p.Attach(); err != nil {
				t.Fatal(err)
			}
			h.run()
			if got := p.UringLost(); got != want {
				t.Errorf("%d lost, want %d", got, want)
			}
		})
	}
}
