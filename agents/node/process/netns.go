package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// NetNS is a network namespace that stays alive as long as File is open.
type NetNS struct {
	File *os.File
	// Inode identifies the namespace on this node while it exists.
	Inode uint64
	// Process is the process whose namespace was opened.
	Process Process
}

// Close closes the namespace's file.
func (n *NetNS) Close() error { return n.File.Close() }

// ErrOwnNetNS says that all processes of a Pod are in network namespaces that they have made themselves.
var ErrOwnNetNS = errors.New("the Pod's processes have left its network namespace for others, which the container runtime did not make")

// OpenNetNS opens the network namespace that the runtime has made for a Pod, or the node's if hostNetwork is set. A process of
// the Pod must be in it: otherwise OpenNetNS returns ErrNoProcess or ErrOwnNetNS. A process that has just been started is in the
// node's, which OpenNetNS returns if no process is in another. Where the node does not tell which namespaces the runtime has
// made, the Pod's oldest process decides, which is the sandbox's if the runtime keeps one.
func (f Finder) OpenNetNS(uid string, hostNetwork bool) (*NetNS, error) {
	procs, err := f.Pod(uid)
	if err != nil {
		return nil, err
	}
	node, err := f.HostNetNS()
	if err != nil && hostNetwork {
		return nil, err
	}
	made := f.madeByRuntime()
	var inNode *Process
	problem := ErrNoProcess
	for _, p := range procs {
		n, err := f.OpenProcessNetNS(uid, p)
		if errors.Is(err, ErrNoProcess) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch {
		case hostNetwork == (n.Inode == node) && (hostNetwork || made == nil || made[n.Inode]):
			return n, nil
		case n.Inode == node && inNode == nil:
			inNode = &p
		case n.Inode != node:
			problem = ErrOwnNetNS
		}
		_ = n.Close() // opened for reading
	}
	if inNode != nil {
		return f.OpenProcessNetNS(uid, *inNode)
	}
	return nil, fmt.Errorf("open network namespace of pod %s: %w", uid, problem)
}

// OpenProcessNetNS opens the network namespace of one process of the Pod. It returns ErrNoProcess if the process has ended,
// even if another one has its PID now.
func (f Finder) OpenProcessNetNS(uid string, p Process) (*NetNS, error) {
	pidfd, err := openPidfd(p.PID)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	file, err := os.Open(f.path(p.PID, "ns/net"))
	if err != nil {
		if ignoreGone(err) == nil {
			return nil, fmt.Errorf("process %d: %w", p.PID, ErrNoProcess)
		}
		return nil, fmt.Errorf("open network namespace (needs CAP_SYS_PTRACE): %w", err)
	}
	n := &NetNS{File: file, Process: p}
	if n.Inode, err = f.verify(file, pidfd, uid, p); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return n, nil
}

// verify checks that the namespace belongs to one living process of the Pod. It reads the process after the namespace was
// opened. The pidfd, which was opened before, shows that no other process got the PID in between.
func (f Finder) verify(file *os.File, pidfd int, uid string, p Process) (uint64, error) {
	now, ok, err := f.process(p.PID, uid)
	if err != nil {
		return 0, err
	}
	gone, err := exited(pidfd)
	if err != nil {
		return 0, err
	}
	if !ok || gone || now != p {
		return 0, fmt.Errorf("process %d: %w", p.PID, ErrNoProcess)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, fmt.Errorf("stat network namespace: %w", err)
	}
	return st.Ino, nil
}

// HostNetNS returns the inode of the node's own network namespace, in which process 1 runs. A Pod whose namespace has
// the same inode uses the host network, whatever its spec says.
func (f Finder) HostNetNS() (uint64, error) {
	st, err := f.statNetNS("1")
	if err != nil {
		return 0, fmt.Errorf("find the node's network namespace (needs hostPID and CAP_SYS_PTRACE): %w", err)
	}
	return st.Ino, nil
}

// OpenHostNetNS opens the node's own network namespace, in which process 1 runs.
func (f Finder) OpenHostNetNS() (*NetNS, error) {
	file, err := os.Open(f.path(1, "ns/net"))
	if err != nil {
		return nil, fmt.Errorf("open the node's network namespace (needs hostPID and CAP_SYS_PTRACE): %w", err)
	}
	n := &NetNS{File: file, Process: Process{PID: 1}}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return nil, errors.Join(fmt.Errorf("stat network namespace: %w", err), file.Close())
	}
	n.Inode = st.Ino
	return n, nil
}

// statNetNS returns device and inode of the network namespace of a process, which may be "self".
func (f Finder) statNetNS(pid string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(f.root(), pid, "ns/net"), &st)
	return st, err
}

// openPidfd opens a pidfd, which never refers to a later process with the same PID. It returns ErrNoProcess if the
// process has ended.
func openPidfd(pid int) (int, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return -1, fmt.Errorf("process %d: %w", pid, ErrNoProcess)
	}
	if err != nil {
		return -1, fmt.Errorf("open process %d: %w", pid, err)
	}
	return fd, nil
}

// exited reports whether the process of a pidfd has ended: then the descriptor is readable (pidfd_open(2)).
func exited(pidfd int) (bool, error) {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("poll process: %w", err)
		}
		return n > 0, nil
	}
}

// ignoreGone returns nil for an error that means that the process has ended.
func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("read process: %w", err)
}
