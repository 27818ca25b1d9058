package trace

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/output"
)

// A shell starts programs: each event has its process and path, in order.
func TestTraceOfAShell(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	h := pod.hold(t, "", "/bin/sh", "-c", "cat /etc/hostname > out; cat missing 2>/dev/null; cd /; exec 9<etc/passwd; true")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO}, Durations: true})
	h.run()
	lines := r.stop()
	has := func(want string, fits func(l *line) bool) {
		t.Helper()
		if !slices.ContainsFunc(lines, func(l line) bool { return fits(&l) }) {
			t.Errorf("no line for %s", want)
		}
	}
	has("cat's start", func(l *line) bool {
		argv, _ := l.Args["argv"].([]any)
		return l.Call == decode.EventExec && strings.HasSuffix(l.Path, "/cat") && len(argv) == 2 && argv[1] == "/etc/hostname"
	})
	has("the file that is written", func(l *line) bool {
		return l.Call == "openat" && l.Path == h.cmd.Dir+"/out" && l.Comm == "sh" && l.Ret != nil && *l.Ret >= 0
	})
	has("a write to it", func(l *line) bool {
		return l.Group == string(decode.GroupIO) && l.Comm == "cat" && l.Errno == "" && l.Path == "/etc/hostname"
	})
	has("the file that is missing", func(l *line) bool {
		return l.Call == "openat" && l.Path == h.cmd.Dir+"/missing" && l.Errno == "ENOENT"
	})
	has("a path from the new working directory", func(l *line) bool { return l.Call == "openat" && l.Path == "/etc/passwd" && l.Comm == "sh" })
	has("the failed cat's end", func(l *line) bool { return l.Call == decode.EventExit && l.Comm == "cat" && *l.Ret == 1 })
	for i := range lines {
		l := &lines[i]
		if i > 0 && l.Time < lines[i-1].Time {
			t.Errorf("line %d is earlier than the one before", i)
		}
		if began := i > 0; began && l.Group != string(decode.GroupProcess) && (l.LatencyNs == nil || *l.LatencyNs <= 0) {
			t.Errorf("%s took %v", l.Call, l.LatencyNs)
		}
	}
}

// The kernel closes a descriptor at exec if openat2's struct open_how says so. Then it has no name any more; others keep theirs.
func TestOpenat2AndExec(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	h := pod.hold(t, "", "/bin/sh", "-c", workloadEnv+`=openat2 exec "$0"`, os.Args[0])
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO}})
	h.run()
	var got []string
	for _, l := range r.stop() {
		if (l.Path == keptFile || l.Path == closedFile) && (l.Call == "openat2" || l.is("count", "4")) {
			got = append(got, l.Call+" "+l.Path)
		}
	}
	if diff := cmp.Diff([]string{"openat2 " + keptFile, "openat2 " + closedFile, "read " + keptFile}, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Two Pods run the same program. Only one is traced, including a cgroup that its container has made, and processes that
// enter it later.
func TestOneWholePodIsTraced(t *testing.T) {
	t.Parallel()
	pod, other := newTestPod(t), newTestPod(t)
	inPod := pod.hold(t, "", "/bin/cat", "/etc/hostname")
	below := pod.hold(t, "made/by", "/bin/cat", "/etc/passwd")
	outside := other.hold(t, "", "/bin/cat", "/etc/hostname")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile}})
	late := pod.hold(t, "late", "/bin/cat", "/etc/group")
	for _, h := range []*held{outside, inPod, below, late} {
		h.run()
	}
	seen := map[int][]string{}
	for _, l := range r.stop() {
		if l.Call == "openat" {
			seen[l.HostPID] = append(seen[l.HostPID], l.Path)
		}
	}
	for want, h := range map[string]*held{"/etc/hostname": inPod, "/etc/passwd": below, "/etc/group": late} {
		if !slices.Contains(seen[h.cmd.Process.Pid], want) {
			t.Errorf("no event of the process that opened %s: %v", want, seen[h.cmd.Process.Pid])
		}
		delete(seen, h.cmd.Process.Pid)
	}
	if len(seen) > 0 {
		t.Errorf("events of other Pods: %v", seen)
	}
}

// A slow reader loses calls, and counts each.
func TestOverload(t *testing.T) {
	t.Parallel()
	const n = 200_000
	pod := newTestPod(t)
	release := pod.startReads(t, n)
	var read atomic.Uint64
	r := start(t, &Config{
		PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, RingBytes: 1,
		Out: sinkFunc(func(lines []byte, _ int) (int, error) {
			read.Add(uint64(strings.Count(string(lines), `"call":"read"`)))
			time.Sleep(5 * time.Millisecond) // a slow disk
			return bytes.Count(lines, newline), nil
		}),
	})
	release()
	r.cancel()
	<-r.done
	if r.result.Err != nil || r.result.Reason != recording.Stopped {
		t.Fatalf("%+v", r.result)
	}
	a := r.result.Account
	t.Logf("%+v", a)
	if a.Written != read.Load() || a.Written+a.Lost() != n+1 {
		t.Errorf("%d written (%d reads) and %d lost, want %d in all", a.Written, read.Load(), a.Lost(), n+1)
	}
	var byCall uint64
	for _, k := range a.LostCalls {
		byCall += k
	}
	if byCall != a.LostRing+a.LostRare || a.LostCalls["read"] != a.LostRing {
		t.Errorf("lost by call: %v, in all %d; by place %d and %d", a.LostCalls, byCall, a.LostRing, a.LostRare)
	}
	if a.Lost() < n/10 {
		t.Errorf("only %d of %d lost: this was no overload", a.Lost(), n)
	}
}

// A limit of events is exact to the event, a limit of bytes to the line.
func TestLimits(t *testing.T) {
	t.Parallel()
	const n = 5000
	pod := newTestPod(t)
	for name, tc := range map[string]struct {
		events uint64
		bytes  int64
		want   recording.Reason
	}{
		"events": {events: 1234, want: recording.EventLimit},
		"one":    {events: 1, want: recording.EventLimit},
		"bytes":  {bytes: 100_000, want: recording.ByteLimit},
		"both":   {events: 10, bytes: 100_000, want: recording.EventLimit},
		"no":     {events: n + 2, bytes: 1 << 30, want: recording.Stopped},
	} {
		t.Run(name, func(t *testing.T) {
			release := pod.startReads(t, n)
			path := filepath.Join(t.TempDir(), "t.ndjson")
			f, err := output.CreateFile(&output.FileConfig{Path: path, Mode: 0o640, MaxBytes: tc.bytes, Spare: 100})
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, MaxEvents: tc.events, Out: f})
			release()
			if tc.want == recording.Stopped {
				r.cancel()
			}
			<-r.done
			if err := f.Last([]byte("{}\n")); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path)
			lines := uint64(bytes.Count(b, newline)) - 1
			a := r.result.Account
			if err != nil || r.result.Reason != tc.want || r.result.Err != nil || lines != a.Written {
				t.Errorf("%+v, %d lines (%v)", r.result, lines, err)
			}
			if tc.want == recording.EventLimit && lines != tc.events {
				t.Errorf("%d events, want exactly %d", lines, tc.events)
			}
			if tc.bytes > 0 && int64(len(b)) > tc.bytes {
				t.Errorf("%d bytes, at most %d", len(b), tc.bytes)
			}
			if seen := a.Written + a.Lost() + a.BeyondLimit; tc.want == recording.Stopped && seen != n+1 {
				t.Errorf("%+v, want %d in all", a, n+1)
			}
		})
	}
}

// Lines that cannot be written end the trace and are counted.
func TestBrokenFile(t *testing.T) {
	t.Parallel()
	const n, taken = 20_000, 700
	pod := newTestPod(t)
	release := pod.startReads(t, n)
	left := taken
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, Out: sinkFunc(func(lines []byte, _ int) (int, error) {
		k := min(left, bytes.Count(lines, newline))
		left -= k
		if left == 0 {
			return k, unix.EIO
		}
		return k, nil
	})})
	release()
	<-r.done
	a := r.result.Account
	if r.result.Reason != recording.Error || !errors.Is(r.result.Err, unix.EIO) || a.Written != taken || a.LostWriter == 0 {
		t.Errorf("%+v", r.result)
	}
}

// A full disk ends the trace: the file has the written events, and all others are lost.
func TestTraceOnAFullDisk(t *testing.T) {
	t.Parallel()
	const n = 50_000
	pod := newTestPod(t)
	release := pod.startReads(t, n)
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "t.ndjson")
	f, err := output.CreateFile(&output.FileConfig{Path: path, Mode: 0o640, Spare: 100, Header: []byte("{}\n")})
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, Out: f})
	release()
	<-r.done
	if err := f.Last([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	lines, a := uint64(bytes.Count(b, newline))-2, r.result.Account
	if err != nil || lines != a.Written || !bytes.HasSuffix(b, []byte("\n{}\n")) {
		t.Errorf("%d lines, account %+v (%v)", lines, a, err)
	}
	if r.result.Reason != recording.DiskFull || a.LostWriter == 0 || a.BeyondLimit != 0 || a.Written == 0 {
		t.Errorf("%+v", r.result)
	}
}

// Even a few lines reach the file soon, and the account never counts more lines than the file has.
func TestLinesReachTheFileSoon(t *testing.T) {
	pod := newTestPod(t)
	path := filepath.Join(t.TempDir(), "t.ndjson")
	f, err := output.CreateFile(&output.FileConfig{Path: path, Mode: 0o640})
	if err != nil {
		t.Fatal(err)
	}
	release := pod.startReads(t, 100)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, Out: f})
	release()
	for written := uint64(0); written <= 100; time.Sleep(time.Millisecond) {
		written = r.trace.Account().Written
		b, err := os.ReadFile(path)
		if lines := uint64(bytes.Count(b, newline)); err != nil || lines < written {
			t.Fatalf("%d lines, %d in the account (%v)", lines, written, err)
		}
	}
	r.cancel()
	<-r.done
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Calls that take less than MinLatency are not recorded.
func TestMinLatency(t *testing.T) {
	pod := newTestPod(t)
	h := pod.hold(t, "", "/bin/sh", "-c", "cat /etc/hostname; sleep 0.2; echo done")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile, decode.GroupIO}, MinLatency: 100 * time.Millisecond})
	h.run()
	for _, l := range r.stop() {
		// Calls that began before the trace may have taken any time. A call that a signal interrupts is restarted.
		if l.LatencyNs != nil && *l.LatencyNs < int64(100*time.Millisecond) && !strings.HasPrefix(l.Errno, "ERESTART") {
			t.Errorf("%s took %d ns", l.Call, *l.LatencyNs)
		}
	}
}

// Signals do not hide a long call: each part of it is recorded, however short.
func TestInterruptedCallsOverMinLatency(t *testing.T) {
	pod := newTestPod(t)
	pid, release := pod.startWorkload(t, "reads", 1)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, MinLatency: time.Hour})
	parts := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Count(r.text.String(), `"errno":"ERESTARTSYS","latencyNs":`)
	}
	for end := time.Now().Add(30 * time.Second); parts() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d parts of the interrupted call are recorded, want 3", parts())
		}
		tid := readerOf(t, pid)
		if tid == 0 {
			continue // it handles the last signal
		}
		if err := unix.Tgkill(pid, tid, unix.SIGURG); err != nil { // which Go ignores
			t.Fatal(err)
		}
	}
	release()
	for _, l := range r.stop() {
		if l.Errno != "ERESTARTSYS" {
			t.Errorf("%s took less than an hour: %+v", l.Call, l)
		}
	}
}

// A container's processes have their own numbers, from 1 on.
func TestPIDsInTheContainer(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	h := pod.hold(t, "", "unshare", "--pid", "--fork", "sh", "-c", "cat /etc/hostname; true")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess}})
	h.run()
	got := map[string][2]int{}
	for _, l := range r.stop() {
		if l.Call == decode.EventExec && l.HostPID != h.cmd.Process.Pid {
			got[l.Comm] = [2]int{l.PID, l.TID}
		}
	}
	if diff := cmp.Diff(map[string][2]int{"sh": {1, 1}, "cat": {2, 2}}, got); diff != "" {
		t.Errorf("process and thread (-want +got):\n%s", diff)
	}
}

func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	h := pod.hold(t, "", "/bin/true")
	tr, err := Open(&Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile}, Out: sinkFunc(func(lines []byte, _ int) (int, error) {
		return bytes.Count(lines, newline), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	ids := programs(t, tr)
	if n := len(stillThere(ids)); n != len(ids) {
		t.Errorf("%d of %d programs are loaded during the trace: the test does not find them", n, len(ids))
	}
	h.run()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res := tr.Run(ctx); res.Err != nil {
		t.Fatal(res.Err)
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if len(stillThere(ids)) == 0 { // the kernel frees programs after a grace period
			return
		}
	}
	t.Errorf("left: %v", stillThere(ids))
}

func TestOpenWithoutAProcess(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t) // needs root; a Pod without a process
	if _, err := Open(&Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile}}); err == nil {
		t.Error("a trace of a Pod without a process began")
	}
	if _, err := Open(&Config{PodUID: "no uid"}); err == nil {
		t.Error("a trace of a missing Pod began")
	}
}

// A process that starts programs and other processes faster than the tracer reads leaves room for other events. What is lost
// of its own is counted.
func TestForksLeaveRoom(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	execs := pod.hold(t, "", "/bin/sh", "-c", `i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done`)
	forks := pod.hold(t, "", "/bin/sh", "-c", `i=0; while [ $i -lt 8000 ]; do (:); i=$((i+1)); done`)
	r := open(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess}})
	for _, step := range []struct {
		what string
		by   *held
		most float64
	}{{decode.EventExec, execs, 0.6}, {decode.EventFork, forks, 0.76}} {
		step.by.run()
		r.trace.countCalls()
		lost := r.trace.Account().LostCalls
		t.Logf("the ring is full to %.2f, lost: %v", r.trace.rare.Fill(), lost)
		if fill := r.trace.rare.Fill(); fill > step.most || lost[step.what] == 0 {
			t.Errorf("the ring is full to %.2f, want at most %.2f; lost: %v", fill, step.most, lost)
		}
	}
	r.run()
	r.stop()
}
