package trace

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/gate"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/test/privileged"
)

// A process opened two descriptors before the trace. The path of the one that its exec closes is gone, and the other one's is not.
func TestInheritedDescriptors(t *testing.T) {
	for name, tc := range map[string]struct {
		command  *kernel.Command
		scan     time.Duration
		want     string // of the descriptor that stays open
		wantLost uint64
	}{
		"a Pod":                  {want: "kept"},
		"a command":              {command: &kernel.Command{Name: filepath.Base(os.Args[0])}, want: "kept"},
		"no time to learn which": {scan: time.Nanosecond, wantLost: 1},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod(t)
			workload := pod.startInteractive(t, "inherit", false)
			workload.expect("ready")
			r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile, decode.GroupProcess}, Command: tc.command, FileScan: tc.scan})
			workload.resume()
			if err := workload.cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, l := range r.stop() {
				if fd := l.arg("fd"); l.Call == "fstat" && (fd == strconv.Itoa(closedByExec) || fd == strconv.Itoa(keptByExec)) {
					got[fd] = strings.TrimPrefix(l.Path, workload.dir+"/")
				}
			}
			if diff := cmp.Diff(map[string]string{strconv.Itoa(closedByExec): "", strconv.Itoa(keptByExec): tc.want}, got); diff != "" {
				t.Errorf("paths (-want +got):\n%s", diff)
			}
			if a := r.result.Account; a.Lost() > 0 || a.Unnamed != tc.wantLost {
				t.Errorf("%+v, want %d unnamed", a, tc.wantLost)
			}
		})
	}
}

// A process of the target has an epoll with a file of FUSE, and has put such a file's memory where its arguments are. The file's
// server never answers. A probe that read either from /proc could not even be killed, while its programs are attached.
func TestFileThatNeverAnswers(t *testing.T) {
	privileged.Need(t)
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ENODEV) {
		t.Skip("this machine has no FUSE: TestReadsNothingThatWaitsForTheProcess and TestProgramWithoutArguments check what is read")
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = fuse.Close()
	program := compile(t, "fusehang.c", "-pthread")
	pod := newTestPod(t)
	target := pod.startProgram(t, program, filepath.Join(t.TempDir(), "file"))
	server, err := strconv.Atoi(target.expect(""))
	if err != nil {
		t.Fatal(err)
	}
	// The server's end releases all that wait, also a test that has failed.
	release := func() { _ = unix.Kill(server, unix.SIGKILL) }
	t.Cleanup(release)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r, err := Open(&Config{PodUID: pod.uid, Groups: decode.AllGroups(), Out: sinkFunc(func([]byte, int) (int, error) { return 0, nil })})
		if err != nil {
			t.Error(err)
			return
		}
		_, err = gate.Opener{Finder: process.Finder{}, Executable: program}.Open(t.Context(), pod.uid)
		if !errors.Is(err, gate.ErrNoGate) {
			t.Errorf("a process that is no gate: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Run(ctx)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("the trace waits for the file's server")
		release()
		<-done
	}
}

// Seccomp answers a call that would change the working directory. Paths that start from there are unknown then, and that is counted.
func TestCallThatSeccompAnswers(t *testing.T) {
	pod := newTestPod(t)
	workload := pod.startInteractive(t, "answered", false)
	workload.expect("ready")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile}, Durations: true})
	workload.resume()
	if err := workload.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	checkAnswered(t, r)
}

// checkAnswered stops the trace of a process that calls chdir to /etc, which seccomp answers, and then opens shop.
func checkAnswered(t *testing.T, r *running) {
	t.Helper()
	seen := 0
	for _, l := range r.stop() {
		switch {
		case l.Call == "chdir" && l.arg("pathname") == "/etc":
			if seen++; l.LatencyNs != nil || l.Ret == nil || *l.Ret != 0 {
				t.Errorf("a call that the kernel has not made: %+v", l)
			}
		case l.Call == "openat" && l.arg("pathname") == "shop":
			if seen++; l.Path != "" {
				t.Errorf("the path %s, to which the process has never gone", l.Path)
			}
		}
	}
	if a := r.result.Account; seen != 2 || a.Unnamed == 0 {
		t.Errorf("%d of 2 calls, %+v", seen, a)
	}
}

// The first thread of a process ends. The process still has its files and its working directory, and so have its children.
func TestProcessWithoutItsFirstThread(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	workload := pod.startInteractive(t, "headless", false)
	workload.expect("ready")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile, decode.GroupProcess}})
	workload.resume()
	if err := workload.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	ended := false
	var got []string
	for _, l := range r.stop() {
		switch {
		case l.Call == decode.EventExit && l.HostPID == l.HostTID && l.HostPID == workload.cmd.Process.Pid:
			ended = true
		case ended && (l.arg("fd") == strconv.Itoa(keptByExec) || l.arg("pathname") == "kept"):
			got = append(got, l.Comm+" "+l.Call+" "+l.Path)
		}
	}
	comm, kept := filepath.Base(os.Args[0]), filepath.Join(workload.dir, "kept")
	want := []string{comm + " fstat " + kept, comm + " openat " + kept, "cat openat " + kept}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls with the file's path (-want +got):\n%s", diff)
	}
}

// A call that reads from a pipe lasts until its descriptor is another file. It has not read from that one.
func TestDescriptorThatChangesDuringACall(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	workload := pod.startInteractive(t, "swap", false)
	workload.expect("ready")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile, decode.GroupIO}, Durations: true})
	workload.resume()
	if err := workload.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range r.stop() {
		if l.Call == "read" && l.arg("fd") == strconv.Itoa(keptByExec) {
			got = append(got, l.Path)
		}
	}
	if diff := cmp.Diff([]string{"", filepath.Join(workload.dir, "other")}, got); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if a := r.result.Account; a.Lost() > 0 || a.Unnamed != 1 {
		t.Errorf("%+v, want one unnamed", a)
	}
}

// A descriptor becomes another file while a process forks. The child has the file that it was before.
func TestDescriptorThatChangesDuringAFork(t *testing.T) {
	t.Parallel()
	pod := newTestPod(t)
	dir := t.TempDir()
	other := filepath.Join(dir, "other")
	h := pod.hold(t, "", compile(t, "forkswap.c", "-pthread"), filepath.Join(dir, "first"), other)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupProcess, decode.GroupFile, decode.GroupIO}, Durations: true})
	h.run()
	written := 0
	for _, l := range r.stop() {
		if l.Call == "write" && l.arg("fd") == "100" {
			if written++; l.Path == other {
				t.Errorf("a child writes to the file that its descriptor has never been: %+v", l)
			}
		}
	}
	if written == 0 {
		t.Error("no child has written")
	}
}

// Descriptors have names only in a trace that records what changes them, and shows them.
func TestTracesWithNamesOfFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg  Config
		want bool
	}{
		"files":            {Config{Groups: []decode.Group{decode.GroupProcess, decode.GroupFile}}, true},
		"sockets":          {Config{Groups: []decode.Group{decode.GroupNetwork}}, true},
		"data":             {Config{Groups: []decode.Group{decode.GroupIO}}, false},
		"neither":          {Config{Groups: []decode.Group{decode.GroupProcess, decode.GroupMemory, decode.GroupSignal}}, false},
		"slow calls alone": {Config{Groups: decode.AllGroups(), MinLatency: time.Millisecond}, false},
	} {
		if got := tc.cfg.namesFiles(); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// Seccomp answers the first call of a program. The execve that has started it has no end, and is not the beginning of that call.
func TestFirstCallThatSeccompAnswers(t *testing.T) {
	pod := newTestPod(t)
	h := pod.hold(t, "", compile(t, "answered.c", "-nostdlib", "-static", "-fno-stack-protector"))
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile, decode.GroupProcess}, Durations: true})
	h.run()
	checkAnswered(t, r)
}

// A process changes its descriptors while the trace begins. No call has the path of the file that a descriptor became only later.
func TestDescriptorsThatChangeWhileTheTraceBegins(t *testing.T) {
	pod := newTestPod(t)
	privileged.Descriptors(t, 200_000) // so that the trace takes some time to begin
	workload := pod.startInteractive(t, "flip", false)
	workload.expect("ready")
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupFile, decode.GroupNetwork}})
	time.Sleep(100 * time.Millisecond)
	lines := r.stop()
	changed, early, wrong := map[string]bool{}, 0, 0
	is := map[string]string{} // what a descriptor is, by the change before, or by the first one
	for _, l := range lines {
		if fd := l.arg("newfd"); l.Call == "dup3" && is[fd] == "" {
			other := flipOne + flipOther - number(t, &l, "oldfd")
			is[fd] = filepath.Join(workload.dir, strconv.Itoa(other-flipOne))
		}
	}
	for _, l := range lines {
		switch l.Call {
		case "dup3":
			fd := l.arg("newfd")
			changed[fd] = true
			is[fd] = filepath.Join(workload.dir, strconv.Itoa(number(t, &l, "oldfd")-flipOne))
		case "fstat":
			fd := l.arg("fd")
			if is[fd] == "" {
				continue
			}
			if !changed[fd] {
				early++
			}
			if l.Path != is[fd] && (l.Path != "" || changed[fd]) {
				wrong++
			}
		}
	}
	if a := r.result.Account; wrong > 0 || early == 0 || a.Lost() > 0 {
		t.Errorf("%d of %d calls have the path of another file; %d came before the first change of their descriptor; %+v", wrong, len(lines), early, a)
	}
}

func number(t *testing.T, l *line, arg string) int {
	t.Helper()
	n, err := strconv.Atoi(l.arg(arg))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
