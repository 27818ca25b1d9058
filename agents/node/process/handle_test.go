package process

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The process's memory is not read: its page may be a file of FUSE whose server never answers, and then nothing ends the reader.
func TestProgramWithoutArguments(t *testing.T) {
	root, pid := t.TempDir(), os.Getpid()
	dir := filepath.Join(root, strconv.Itoa(pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/agent", filepath.Join(dir, "exe")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "comm"), []byte("sonde-gate\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"cmdline", "environ", "maps", "mem"} { // a reader of these would wait for ever
		if err := unix.Mkfifo(filepath.Join(dir, file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fd, err := openPidfd(pid)
	if err != nil {
		t.Fatal(err)
	}
	h := &Handle{Process: Process{PID: pid}, finder: Finder{Root: root}, pidfd: fd}
	defer h.Close()
	if exe, name, err := h.Program(); err != nil || exe != "/agent" || name != "sonde-gate" {
		t.Errorf("program %q with the name %q, %v", exe, name, err)
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
	exe, name, err := h.Program()
	if err != nil || !strings.HasPrefix(exe, "/") || name != "sleep" {
		t.Errorf("program %q with the name %q, %v", exe, name, err)
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
