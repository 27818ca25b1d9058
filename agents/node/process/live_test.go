package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/privileged"
)

// The main thread keeps its network namespace, which is /proc/self's: without this, a test might run on it and leave it.
func init() { runtime.LockOSThread() }

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
	return startWith(t, cgroup, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL})
}

// startInNetNS starts a process in a cgroup and a network namespace.
func startInNetNS(t *testing.T, cgroup string, ns *os.File) (cmd *exec.Cmd) {
	t.Helper()
	done := make(chan struct{})
	go func() { // a failure ends the goroutine
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends here
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		cmd = startWith(t, cgroup, &syscall.SysProcAttr{})
	}()
	<-done
	if cmd == nil {
		t.FailNow()
	}
	return cmd
}

func startWith(t *testing.T, cgroup string, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = attr
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
	n, err := Finder{}.OpenNetNS(uid, false)
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
	if _, err := (Finder{}).OpenNetNS(uid, false); !errors.Is(err, ErrNoProcess) {
		t.Errorf("after its end: %v", err)
	}
}

// mountNetNS mounts a network namespace in the directory of the node where the runtime does it. It returns a function that
// unmounts it.
func mountNetNS(t *testing.T, root, name, ns string) func() {
	t.Helper()
	path := filepath.Join(root, pinnedNetNS, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600), unix.Mount(ns, path, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	unmount := sync.OnceFunc(func() {
		if err := errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(unmount)
	return unmount
}

// A Pod's process that has made a network namespace of its own does not decide which one is recorded, even if it is the oldest,
// as it is where the runtime keeps no sandbox process. It does not end a recording either: it may still have sockets of the Pod's.
func TestOwnNetNSOfAProcess(t *testing.T) {
	privileged.Need(t)
	runtime.LockOSThread() // Pdeathsig is sent when the thread ends that started the process
	defer runtime.UnlockOSThread()
	root, made := t.TempDir(), privileged.NetNS(t)
	mountNetNS(t, root, "cni-own", "/proc/self/ns/net") // of a Pod like the probe's, which is this process
	f := Finder{NodeRoot: root}
	web, log := podCgroup(t, id), podCgroup(t, id2)
	escaped := startIn(t, web)
	if _, err := f.OpenNetNS(uid, false); !errors.Is(err, ErrOwnNetNS) {
		t.Errorf("all processes are in namespaces of their own: %v", err)
	}
	stays := startInNetNS(t, log, made)
	if _, err := f.OpenNetNS(uid, false); !errors.Is(err, ErrOwnNetNS) {
		t.Errorf("no process is in a namespace of the runtime's: %v", err)
	}
	unmount := mountNetNS(t, root, "cni-pod", fmt.Sprintf("/proc/self/fd/%d", made.Fd()))
	n, err := f.OpenNetNS(uid, false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if n.Process.PID != stays.Process.Pid {
		t.Errorf("opened through process %d, want %d; %d has left the namespace", n.Process.PID, stays.Process.Pid, escaped.Process.Pid)
	}
	if old, err := (Finder{NodeRoot: t.TempDir()}).OpenNetNS(uid, false); err != nil || old.Process.PID != escaped.Process.Pid {
		t.Errorf("where the node does not tell, the oldest process decides: %v", err)
	}

	ch := wait(t, &Watcher{Finder: f, UID: uid, NetNS: n.Inode, Grace: 300 * time.Millisecond})
	end(stays)
	quiet(t, ch, 600*time.Millisecond)
	end(escaped)
	unmount()
	if r := <-ch; r != GoneNoProcess {
		t.Errorf("reason %s", r)
	}
}

// A Pod on its node's network is recorded there, even if its oldest process has left for another namespace.
func TestOwnNetNSOnTheNodesNetwork(t *testing.T) {
	cgroup := podCgroup(t, id)
	escaped := startIn(t, cgroup)
	root := t.TempDir()
	add := func(name, process string) {
		if err := os.Symlink(filepath.Join("/proc", process), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	add("1", "self") // the machine's own may not be accessible
	add("self", "self")
	add(strconv.Itoa(escaped.Process.Pid), strconv.Itoa(escaped.Process.Pid))
	f := Finder{Root: root, NodeRoot: t.TempDir()}
	if _, err := f.OpenNetNS(uid, true); !errors.Is(err, ErrOwnNetNS) {
		t.Errorf("no process is in the node's namespace: %v", err)
	}
	stays := startWith(t, cgroup, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL})
	add(strconv.Itoa(stays.Process.Pid), strconv.Itoa(stays.Process.Pid))
	n, err := f.OpenNetNS(uid, true)
	if err != nil || n.Process.PID != stays.Process.Pid {
		t.Fatalf("%+v, %v; want process %d", n, err, stays.Process.Pid)
	}
	_ = n.Close()
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
	n, err := Finder{}.OpenNetNS(uid, false)
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

// A container that has crashed may wait for its restart for minutes, and the runtime may keep no process for the sandbox. The Pod
// is there as long as the runtime keeps its network namespace, and gone soon after that.
func TestWatcherWaitsForTheRuntimesNetNS(t *testing.T) {
	root, made := t.TempDir(), privileged.NetNS(t)
	unmount := mountNetNS(t, root, "cni-pod", fmt.Sprintf("/proc/self/fd/%d", made.Fd()))
	web := podCgroup(t, id)
	app := startInNetNS(t, web, made)
	n, err := Finder{}.OpenNetNS(uid, false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ch := wait(t, &Watcher{Finder: Finder{NodeRoot: root}, UID: uid, NetNS: n.Inode, Grace: 300 * time.Millisecond})
	quiet(t, ch, 200*time.Millisecond)
	end(app)
	quiet(t, ch, time.Second)
	app = startInNetNS(t, web, made)
	quiet(t, ch, 500*time.Millisecond)
	end(app)
	unmount()
	began := time.Now()
	if r, took := <-ch, time.Since(began); r != GoneNoProcess || took > DefaultGrace {
		t.Errorf("reason %s after %v", r, took)
	}
}

// A gated Pod may be without a process for minutes. Where the runtime's mount shows that its sandbox is stopped, that is not
// awaited.
func TestWatcherNeedsNoLongGraceWithAMount(t *testing.T) {
	root, made := t.TempDir(), privileged.NetNS(t)
	unmount := mountNetNS(t, root, "cni-pod", fmt.Sprintf("/proc/self/fd/%d", made.Fd()))
	app := startInNetNS(t, podCgroup(t, id), made)
	n, err := Finder{}.OpenNetNS(uid, false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ch := wait(t, &Watcher{Finder: Finder{NodeRoot: root}, UID: uid, NetNS: n.Inode, Grace: 5 * time.Minute})
	quiet(t, ch, 200*time.Millisecond)
	end(app)
	unmount()
	if r := <-ch; r != GoneNoProcess {
		t.Errorf("reason %s", r)
	}
}

// A new sandbox has another network. The runtime may keep the mount of the old one for a while.
func TestWatcherSeesNewSandboxDespiteTheMount(t *testing.T) {
	root, first, second := t.TempDir(), privileged.NetNS(t), privileged.NetNS(t)
	mountNetNS(t, root, "cni-own", "/proc/self/ns/net")
	mountNetNS(t, root, "cni-1", fmt.Sprintf("/proc/self/fd/%d", first.Fd()))
	mountNetNS(t, root, "cni-2", fmt.Sprintf("/proc/self/fd/%d", second.Fd()))
	web := podCgroup(t, id)
	old := startInNetNS(t, web, first)
	n, err := Finder{}.OpenNetNS(uid, false)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ch := wait(t, &Watcher{Finder: Finder{NodeRoot: root}, UID: uid, NetNS: n.Inode, Grace: 300 * time.Millisecond})
	startInNetNS(t, web, second)
	quiet(t, ch, 500*time.Millisecond)
	end(old)
	if r := <-ch; r != GoneNewSandbox {
		t.Errorf("reason %s", r)
	}
}

// A process in a namespace of its own keeps the Pod as long as the runtime keeps the Pod's namespace, and not beside a new sandbox. It
// may be one that has survived the old sandbox, or one that the new sandbox's containers have started.
func TestWatcherSeesNewSandboxBesideOwnNetNS(t *testing.T) {
	for name, survives := range map[string]bool{"of the old sandbox": true, "of the new sandbox": false} {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread() // Pdeathsig is sent when the thread ends that started the process
			defer runtime.UnlockOSThread()
			root, first, second := t.TempDir(), privileged.NetNS(t), privileged.NetNS(t)
			mountNetNS(t, root, "cni-own", "/proc/self/ns/net")
			unmount := mountNetNS(t, root, "cni-1", fmt.Sprintf("/proc/self/fd/%d", first.Fd()))
			mountNetNS(t, root, "cni-2", fmt.Sprintf("/proc/self/fd/%d", second.Fd()))
			web := podCgroup(t, id)
			old := startInNetNS(t, web, first)
			n, err := Finder{NodeRoot: root}.OpenNetNS(uid, false)
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			ch := wait(t, &Watcher{Finder: Finder{NodeRoot: root}, UID: uid, NetNS: n.Inode, Grace: 300 * time.Millisecond})
			if survives {
				startIn(t, web)
				end(old)
				quiet(t, ch, 500*time.Millisecond)
				startInNetNS(t, web, second)
				quiet(t, ch, ownRescan+500*time.Millisecond) // the old namespace is still mounted
				unmount()
			} else {
				unmount()
				end(old)
				startInNetNS(t, web, second)
				startIn(t, web)
			}
			select {
			case r := <-ch:
				if r != GoneNewSandbox {
					t.Errorf("reason %s", r)
				}
			case <-time.After(10 * time.Second):
				t.Error("the new sandbox was not seen")
			}
		})
	}
}

// Every Pod of the node's network would seem to stay if someone mounted that namespace.
func TestNodesNetNSIsNoPin(t *testing.T) {
	privileged.Need(t)
	root, proc := t.TempDir(), t.TempDir()
	mountNetNS(t, root, "host", "/proc/self/ns/net")
	for _, name := range []string{"1", "self"} { // the machine's own may not be accessible
		if err := os.Symlink("/proc/self", filepath.Join(proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	f := Finder{Root: proc, NodeRoot: root}
	node, err := f.HostNetNS()
	if err != nil {
		t.Fatal(err)
	}
	if p := f.pinOf(node); p != (pin{}) {
		t.Errorf("pin %+v", p)
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
