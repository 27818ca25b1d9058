package process

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// logLinks is the directory, on the node, where the kubelet makes a link to each container's log when it has started the
// container: POD_NAMESPACE_NAME-ID.log (legacyLogSymlink in pkg/kubelet/kuberuntime of Kubernetes).
const logLinks = "/var/log/containers"

// ContainerNames returns the names of the node's containers by their IDs. They are the kubelet's, and no container can change
// them. A sandbox has none. Nor has a container before the kubelet learns that it has started, or one whose link would have
// a name of more than 255 bytes, from which the kubelet cuts the end of the ID.
func (f Finder) ContainerNames() (map[string]string, error) {
	dir, err := f.openNodeDir(logLinks)
	if err != nil {
		return nil, fmt.Errorf("read the containers' names from the kubelet's links: %w", err)
	}
	defer dir.Close()
	files, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("read the containers' names from the kubelet's links: %w", err)
	}
	names := map[string]string{}
	for _, file := range files {
		if id, name, ok := parseLogLink(file); ok {
			names[id] = name
		}
	}
	return names, nil
}

// parseLogLink reads the name of a link. Names of Pods, namespaces and containers have no underscore, an ID has no hyphen, and
// no name of a container is as long as an ID.
func parseLogLink(file string) (id, name string, ok bool) {
	file, ok = strings.CutSuffix(file, ".log")
	rest := file[strings.LastIndexByte(file, '_')+1:]
	hyphen := strings.LastIndexByte(rest, '-')
	if !ok || len(rest) == len(file) || hyphen <= 0 || !validID(rest[hyphen+1:]) {
		return "", "", false
	}
	return rest[hyphen+1:], rest[:hyphen], true
}

// pinnedNetNS is the directory, on the node, where containerd and CRI-O mount the network namespaces that they make for Pods, so
// that these live without a process.
const pinnedNetNS = "/run/netns"

// pin is the runtime's mount of a network namespace. The zero value is none.
type pin struct {
	name     string // in pinnedNetNS
	dev, ino uint64
}

// pinOf returns the mount of a network namespace. It returns none where the runtime mounts none, and for the node's own namespace,
// which outlives every Pod.
func (f Finder) pinOf(inode uint64) pin {
	own, err := f.statNetNS("self")
	if err != nil || inode == 0 {
		return pin{}
	}
	if node, err := f.statNetNS("1"); err == nil && node.Ino == inode {
		return pin{}
	}
	dir, err := f.openNodeDir(pinnedNetNS)
	if err != nil {
		return pin{}
	}
	defer dir.Close()
	files, err := dir.Readdirnames(-1)
	if err != nil {
		return pin{}
	}
	for _, file := range files {
		if p := (pin{file, own.Dev, inode}); p.isIn(dir) {
			return p
		}
	}
	return pin{}
}

// mounted reports whether the runtime still keeps this network namespace. The runtime unmounts it when it stops the sandbox.
func (f Finder) mounted(p pin) bool {
	if p == (pin{}) {
		return false
	}
	dir, err := f.openNodeDir(pinnedNetNS)
	if err != nil {
		return false
	}
	defer dir.Close()
	return p.isIn(dir)
}

func (p pin) isIn(dir *os.File) bool {
	var st unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), p.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Dev == p.dev && st.Ino == p.ino
}

// madeByRuntime returns the inodes of the network namespaces that the runtime has made. It returns nil where it cannot identify them:
// the one of this process, which is in a Pod as the target is, is not among those that the node has mounted.
func (f Finder) madeByRuntime() map[uint64]bool {
	own, err := f.statNetNS("self")
	if err != nil {
		return nil
	}
	dir, err := f.openNodeDir(pinnedNetNS)
	if err != nil {
		return nil
	}
	defer dir.Close()
	files, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	made := map[uint64]bool{}
	for _, file := range files {
		var st unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), file, &st, unix.AT_SYMLINK_NOFOLLOW); err == nil && st.Dev == own.Dev {
			made[st.Ino] = true
		}
	}
	if !made[own.Ino] {
		return nil
	}
	return made
}

// openNodeDir opens a directory of the node. Links on the way to it lead where they lead on the node, not in this process's own
// root.
func (f Finder) openNodeDir(path string) (*os.File, error) {
	root, err := unix.Open(cmp.Or(f.NodeRoot, f.path(1, "root")), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the node's root directory (needs hostPID and CAP_SYS_PTRACE): %w", err)
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, path, &how)
	if err != nil {
		return nil, fmt.Errorf("open %s of the node: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}
