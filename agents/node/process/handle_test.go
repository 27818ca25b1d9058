package process

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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
