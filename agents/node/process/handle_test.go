package process

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The arguments of a process may be as large as its memory.
func TestLongArguments(t *testing.T) {
	root, pid := t.TempDir(), os.Getpid()
	dir := filepath.Join(root, strconv.Itoa(pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/agent", filepath.Join(dir, "exe")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte("/agent\x00gate\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "cmdline"), 64<<20); err != nil { // a hole takes no disk
		t.Fatal(err)
	}
	fd, err := openPidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	h := &Handle{Process: Process{PID: pid}, finder: Finder{Root: root}, pidfd: fd}
	defer h.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	exe, args, err := h.Program()
	runtime.ReadMemStats(&after)
	if err != nil || exe != "/agent" || len(args) < 2 || args[1] != "gate" {
		t.Errorf("program %q with %d arguments, %v", exe, len(args), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("it took %d bytes", took)
	}
}

func TestHandle(t *testing.T) {
	cmd := startIn(t, podCgroup(t, id))
	procs, err := Finder{}.Pod(uid)
	if err != nil || len(procs) != 1 {
		t.Fatalf("%v, %v", procs, err)
	}
	stale := procs[0]
	stale.StartTime++
	if _, err := (Finder{}).Hold(uid, stale); !errors.Is(err, ErrNoProcess) {
		t.Errorf("a process of another start time: %v", err)
	}
	if _, err := (Finder{}).Hold(other, procs[0]); !errors.Is(err, ErrNoProcess) {
		t.Errorf("a process of another Pod: %v", err)
	}
	h, err := Finder{}.Hold(uid, procs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	exe, args, err := h.Program()
	if err != nil || !strings.HasPrefix(exe, "/") || !slices.Equal(args, []string{"sleep", "300"}) {
		t.Errorf("program %q %q, %v", exe, args, err)
	}
	if over, err := h.Ended(t.Context(), 0); over || err != nil {
		t.Errorf("ended: %v, %v", over, err)
	}
	if err := h.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if over, err := h.Ended(t.Context(), 30*time.Second); !over || err != nil {
		t.Errorf("ended: %v, %v", over, err)
	}
	end(cmd)
	if err := h.Signal(unix.SIGTERM); !errors.Is(err, ErrNoProcess) {
		t.Errorf("signal after its end: %v", err)
	}
	if _, _, err := h.Program(); !errors.Is(err, ErrNoProcess) {
		t.Errorf("program after its end: %v", err)
	}
	if _, err := (Finder{}).Hold(uid, procs[0]); !errors.Is(err, ErrNoProcess) {
		t.Errorf("hold after its end: %v", err)
	}
}
