package tc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
)

// openCgroup opens the Pod's directory in the hierarchy of version 2; the root if the Pod has none there. It mounts the hierarchy
// for itself: a container sees only a part of the node's.
func openCgroup(p *backend.Processes) (dir *os.File, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The thread is in the node's cgroup namespace. It stays locked, so that it ends with this goroutine.
		runtime.LockOSThread()
		dir, err = openNodeCgroup(p)
	}()
	<-done
	if err != nil {
		return nil, fmt.Errorf("open the node's cgroups of version 2: %w", err)
	}
	return dir, nil
}

// firstCgroupNS is the inode of the kernel's first cgroup namespace (PROC_CGROUP_INIT_INO of linux/proc_ns.h).
const firstCgroupNS = 0xEFFFFFFB

// enterNodeCgroups moves the calling thread to the cgroup namespace of process 1.
func enterNodeCgroups() error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/cgroup", &st); err == nil && st.Ino == firstCgroupNS {
		return nil
	}
	ns, err := os.Open("/proc/1/ns/cgroup")
	if err != nil {
		return fmt.Errorf("open the node's cgroup namespace (needs hostPID and CAP_SYS_PTRACE): %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("enter the node's cgroup namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	return nil
}

func openNodeCgroup(p *backend.Processes) (*os.File, error) {
	if err := enterNodeCgroups(); err != nil {
		return nil, err
	}
	root, err := mountCgroup2()
	if err != nil {
		return nil, err
	}
	if p.Cgroup == 0 || p.CgroupV1 {
		return root, nil
	}
	defer root.Close()
	return openPodCgroup(root, p)
}

// mountCgroup2 returns the root of a mount that no file system has.
func mountCgroup2() (*os.File, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open file system cgroup2: %w", err)
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("create file system cgroup2: %w", err)
	}
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount cgroup2: %w", err)
	}
	defer func() { _ = unix.Close(mount) }()
	return openDir(mount, ".")
}

func openDir(at int, name string) (*os.File, error) {
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// errNoCgroup says that a process of the Pod has left the Pod's cgroup.
var errNoCgroup = errors.New("the Pod's process is not in the Pod's cgroup any more: create another capture")

// openPodCgroup opens the Pod's cgroup, which is above that of its process. The number of a cgroup is that of its directory.
func openPodCgroup(root *os.File, p *backend.Processes) (*os.File, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	if err != nil {
		return nil, fmt.Errorf("read cgroup of process %d: %w", p.PID, err)
	}
	for line := range bytes.Lines(b) {
		name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "0::/")
		for ; ok && name != "." && name != ""; name = path.Dir(name) {
			dir, err := openDir(int(root.Fd()), name)
			if err != nil {
				continue // it may be gone, and those above are not
			}
			var st unix.Stat_t
			if unix.Fstat(int(dir.Fd()), &st) == nil && st.Ino == p.Cgroup {
				return dir, nil
			}
			_ = dir.Close() // opened for reading
		}
	}
	return nil, errNoCgroup
}
