package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/test/privileged"
)

// testPods counts the Pods of this process.
var testPods atomic.Uint32

const testContainer = "00000000000000000000000000000000000000000000000000000000000000aa"

// testPod is a cgroup like a Pod's, with one container. Its UID is its own: other tests, and other processes with the same tests, may
// run at the same time.
type testPod struct {
	uid, dir string
}

func newTestPod(tb testing.TB) *testPod {
	tb.Helper()
	privileged.Need(tb)
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
		root += "/pids"
	}
	uid := fmt.Sprintf("0f7c5a4e-1b0c-4e0e-%04x-%012x", testPods.Add(1), os.Getpid())
	base := filepath.Join(root, "sonde-trace-"+uid)
	p := &testPod{uid: uid, dir: filepath.Join(base, "kubepods", "pod"+uid, testContainer)}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		for dir := p.dir; len(dir) >= len(base); dir = filepath.Dir(dir) {
			if err := removeCgroup(dir); err != nil {
				tb.Error(err)
			}
		}
	})
	return p
}

// sidecar makes a second container in the Pod and returns its cgroup.
func (p *testPod) sidecar(tb testing.TB) string {
	tb.Helper()
	dir := filepath.Join(filepath.Dir(p.dir), strings.Replace(testContainer, "aa", "bb", 1))
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := removeCgroup(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// removeCgroup removes a cgroup when its last process has ended.
func removeCgroup(dir string) (err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return err
}

// held is a process of the Pod that waits for a line of input before it starts its program.
type held struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out bytes.Buffer
}

// hold starts a held program in the container's cgroup, or in the cgroup sub below it.
func (p *testPod) hold(t *testing.T, sub string, args ...string) *held {
	t.Helper()
	h := &held{t: t}
	h.cmd = exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", `read go; exec "$@"`, "sh"}, args...)...)
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	h.cmd.Dir = t.TempDir()
	var err error
	if h.in, err = h.cmd.StdinPipe(); err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	})
	dir := filepath.Join(p.dir, sub)
	if sub != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for at := dir; at != p.dir; at = filepath.Dir(at) {
				_ = removeCgroup(at)
			}
		})
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(h.cmd.Process.Pid)), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// run starts the program and waits for its end.
func (h *held) run() {
	h.t.Helper()
	if _, err := h.in.Write([]byte("go\n")); err != nil {
		h.t.Fatal(err)
	}
	if err := h.cmd.Wait(); err != nil {
		h.t.Fatalf("%v: %s", err, h.out.String())
	}
}

// line is a line of the trace.
type line struct {
	Time, Call, Group, Container, Comm, Errno, Path string

	PID, HostPID, TID, HostTID, UID int
	Args                            map[string]any
	Ret                             *int64
	LatencyNs                       *int64
}

// running is a running trace and its output.
type running struct {
	t      testing.TB
	trace  *Trace
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	text   bytes.Buffer
	result Result
}

// Write implements Sink.
func (r *running) Write(lines []byte, _ int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(lines)
	return bytes.Count(lines, newline), nil
}

func (*running) Flush(bool) error { return nil }
func (*running) Pending() uint64  { return 0 }

// sinkFunc is a Sink without pending events.
type sinkFunc func(lines []byte, events int) (int, error)

func (f sinkFunc) Write(lines []byte, events int) (int, error) { return f(lines, events) }
func (sinkFunc) Flush(bool) error                              { return nil }
func (sinkFunc) Pending() uint64                               { return 0 }

var newline = []byte{'\n'}

func start(tb testing.TB, cfg *Config) *running {
	tb.Helper()
	r := open(tb, cfg)
	r.run()
	return r
}

// open attaches a trace. Nothing is read before run.
func open(tb testing.TB, cfg *Config) *running {
	tb.Helper()
	r := &running{t: tb, done: make(chan struct{})}
	if cfg.Out == nil {
		cfg.Out = r
	}
	tr, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.trace = tr
	return r
}

func (r *running) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.done)
		r.result = r.trace.Run(ctx)
	}()
}

// stop ends the trace and returns its lines.
func (r *running) stop() []line {
	r.t.Helper()
	r.cancel()
	<-r.done
	if r.result.Err != nil {
		r.t.Fatal(r.result.Err)
	}
	var all []line
	for text := range strings.Lines(r.text.String()) {
		var l line
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&l); err != nil {
			r.t.Fatalf("%v: %s", err, text)
		}
		all = append(all, l)
	}
	if uint64(len(all)) != r.result.Account.Written {
		r.t.Errorf("%d lines, the account says %d", len(all), r.result.Account.Written)
	}
	return all
}

// programs returns the IDs of a trace's BPF programs.
func programs(t *testing.T, tr *Trace) []ebpf.ProgramID {
	t.Helper()
	var ids []ebpf.ProgramID
	for _, p := range tr.program.Objects.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, ok := info.ID()
		if !ok {
			t.Fatal("the kernel does not number programs")
		}
		ids = append(ids, id)
	}
	return ids
}

// stillThere returns the programs that are still loaded.
func stillThere(ids []ebpf.ProgramID) []ebpf.ProgramID {
	return slices.DeleteFunc(slices.Clone(ids), func(id ebpf.ProgramID) bool {
		p, err := ebpf.NewProgramFromID(id)
		if err == nil {
			_ = p.Close()
		}
		return errors.Is(err, os.ErrNotExist)
	})
}
