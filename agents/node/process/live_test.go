package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/privileged"
)

// podCgroup makes the cgroup of a container as the cgroupfs driver does, in a hierarchy of this machine.
func podCgroup(t *testing.T, container string) string {
	t.Helper()
	privileged.Need(t)
	root := "/sys/fs/cgroup"
	for _, v1 := range []string{"unified", "pids"} {
		if _, err := os.Stat(filepath.Join(root, v1, "cgroup.procs")); err == nil {
			root = filepath.Join(root, v1)
			break
		}
	}
	base := filepath.Join(root, "sonde-test-"+strconv.Itoa(os.Getpid()))
	parts := []string{base, base + "/kubepods", base + "/kubepods/pod" + uid, base + "/kubepods/pod" + uid + "/" + container}
	for _, p := range parts {
		if err := os.Mkdir(p, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(p) }) // in reverse order of creation
	}
	return parts[len(parts)-1]
}

// startIn starts a process in a cgroup and a network namespace of its own.
func startIn(t *testing.T, cgroup string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(cmd) })
	if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func TestOpenNetNS(t *testing.T) {
	cmd := startIn(t, podCgroup(t, id))
	n, err := Finder{}.OpenNetNS(uid)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.Process.PID != cmd.Process.Pid || n.Process.ContainerID != id {
		t.Errorf("opened through %+v, want %d", n.Process, cmd.Process.Pid)
	}
	if own := hostNetNS(t, "/proc/self"); n.Inode == 0 || n.Inode == own {
		t.Errorf("inode %d, our own %d", n.Inode, own)
	}
	if same := hostNetNS(t, filepath.Join("/proc", strconv.Itoa(n.Process.PID))); n.Inode != same {
		t.Errorf("inode %d, by the process %d", n.Inode, same)
	}
	stale := n.Process
	stale.StartTime++
	if _, err := (Finder{}).OpenProcessNetNS(uid, stale); !errors.Is(err, ErrNoProcess) {
		t.Errorf("a process of another start time: %v", err)
	}
	if _, err := (Finder{}).OpenProcessNetNS(other, n.Process); !errors.Is(err, ErrNoProcess) {
		t.Errorf("a process of another Pod: %v", err)
	}
	end(cmd)
	if _, err := (Finder{}).OpenNetNS(uid); !errors.Is(err, ErrNoProcess) {
		t.Errorf("after its end: %v", err)
	}
}

// hostNetNS returns HostNetNS of a /proc in which process 1 is the given process: the machine's own may not be
// accessible.
func hostNetNS(t *testing.T, process string) uint64 {
	t.Helper()
	root := t.TempDir()
	if err := os.Symlink(process, filepath.Join(root, "1")); err != nil {
		t.Fatal(err)
	}
	ino, err := Finder{Root: root}.HostNetNS()
	if err != nil {
		t.Fatal(err)
	}
	return ino
}

// wait runs a watcher and returns its reason.
func wait(t *testing.T, w *Watcher) <-chan GoneReason {
	t.Helper()
	ch := make(chan GoneReason, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	go func() {
		r, err := w.Wait(ctx)
		if err != nil && t.Context().Err() == nil {
			t.Errorf("Wait: %v", err)
		}
		ch <- r
	}()
	return ch
}

// quiet fails if the watcher returns within d.
func quiet(t *testing.T, ch <-chan GoneReason, d time.Duration) {
	t.Helper()
	select {
	case r := <-ch:
		t.Fatalf("gone (%s) too early", r)
	case <-time.After(d):
	}
}

func TestWatcherOutlivesRestartsOfContainers(t *testing.T) {
	pause, web := podCgroup(t, id2), podCgroup(t, id)
	sandbox, app := startIn(t, pause), startIn(t, web)
	ch := wait(t, &Watcher{UID: uid, Grace: 300 * time.Millisecond})
	end(app)
	quiet(t, ch, 600*time.Millisecond)
	app = startIn(t, web)
	end(sandbox) // the runtime drops the sandbox process: the container alone keeps the Pod
	quiet(t, ch, 600*time.Millisecond)
	end(app)
	if r := <-ch; r != GoneNoProcess {
		t.Errorf("reason %s", r)
	}
}

func TestWatcherAllowsGraceWithoutProcess(t *testing.T) {
	web := podCgroup(t, id)
	app := startIn(t, web)
	ch := wait(t, &Watcher{UID: uid, Grace: 2 * time.Second})
	end(app)
	quiet(t, ch, 300*time.Millisecond)
	app = startIn(t, web)
	quiet(t, ch, 2500*time.Millisecond)
	end(app)
	if r := <-ch; r != GoneNoProcess {
		t.Errorf("reason %s", r)
	}
}

func TestWatcherSeesNewSandbox(t *testing.T) {
	web := podCgroup(t, id)
	old := startIn(t, web)
	n, err := Finder{}.OpenNetNS(uid)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ch := wait(t, &Watcher{UID: uid, NetNS: n.Inode, Grace: 300 * time.Millisecond})
	startIn(t, web)
	quiet(t, ch, 500*time.Millisecond)
	end(old)
	if r := <-ch; r != GoneNewSandbox {
		t.Errorf("reason %s", r)
	}
}

func TestWatcherEndsWithContext(t *testing.T) {
	startIn(t, podCgroup(t, id))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := (&Watcher{UID: uid}).Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	if _, err := (&Watcher{UID: uid}).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
