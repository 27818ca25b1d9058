package process

import (
	"bytes"
	"strings"
)

// Container identifies the container and the Pod of a process.
type Container struct {
	// PodUID is as in metadata.uid, or the config hash of a static Pod (32 hexadecimal digits).
	PodUID string
	// ID is the runtime's container ID without a scheme: 64 hexadecimal digits. The Pod's sandbox has one, too.
	ID string
}

const (
	containerIDLen = 64 // containerd, CRI-O and docker alike
	staticUIDLen   = 32 // an MD5 (applyDefaults in pkg/kubelet/config/common.go of Kubernetes)
	uidLen         = 36
)

// ParseCgroup reads a /proc/<pid>/cgroup file (cgroups(7)). Each line is one hierarchy of version 1 or the one of
// version 2. The first line that names a container of a Pod counts, because a runtime need not use every hierarchy. It
// returns false for a process that is in no container of a Pod.
func ParseCgroup(b []byte) (Container, bool) {
	for len(b) > 0 {
		var line []byte
		line, b, _ = bytes.Cut(b, []byte{'\n'})
		// hierarchy-ID:controllers:path; a path may have more colons.
		parts := bytes.SplitN(line, []byte{':'}, 3)
		if len(parts) != 3 {
			continue
		}
		if c, ok := parsePath(string(parts[2])); ok {
			return c, true
		}
	}
	return Container{}, false
}

// parsePath finds a Pod's component followed by a container's. Components before them do not matter: the kubelet's root
// may be anywhere (a node within a cgroup), and is ".." for a reader in a cgroup namespace. Components after them do
// not matter either: a container may divide its own cgroup. The outermost pair counts: otherwise a container could pass
// for another Pod's by creating a cgroup with such a name.
func parsePath(path string) (Container, bool) {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		// containerd without SystemdCgroup under a kubelet with the systemd driver: one component with colons.
		if slice, rest, ok := strings.Cut(p, ":"); ok {
			if uid, ok := PodUID(slice); ok {
				_, id, _ := strings.Cut(rest, ":")
				return Container{PodUID: uid, ID: id}, validID(id)
			}
			continue
		}
		uid, ok := PodUID(p)
		if !ok {
			continue
		}
		if i+1 == len(parts) {
			return Container{}, false
		}
		id, ok := containerID(parts[i+1])
		return Container{PodUID: uid, ID: id}, ok
	}
	return Container{}, false
}

// PodUID reads a Pod's component: "pod<uid>" of the cgroupfs driver, "<parents>-pod<uid with _>.slice" of systemd's.
func PodUID(part string) (string, bool) {
	if uid, ok := strings.CutPrefix(part, "pod"); ok && validUID(uid) {
		return uid, true
	}
	name, ok := strings.CutSuffix(part, ".slice")
	if !ok {
		return "", false
	}
	i := strings.LastIndex(name, "-pod")
	if i < 0 || !strings.Contains("-"+name[:i]+"-", "-kubepods-") {
		return "", false
	}
	uid := strings.ReplaceAll(name[i+len("-pod"):], "_", "-")
	return uid, validUID(uid)
}

// containerID reads a container's component: the bare ID, or one with a runtime's prefix, with ".scope" if systemd created
// it. CRI-O's monitor (crio-conmon-<id>) is beside its container, but it is a process of the node.
func containerID(part string) (string, bool) {
	part = strings.TrimSuffix(part, ".scope")
	for _, prefix := range []string{"cri-containerd-", "crio-", "docker-", "libpod-"} {
		if id, ok := strings.CutPrefix(part, prefix); ok {
			return id, validID(id)
		}
	}
	return part, validID(part)
}

func validID(s string) bool { return len(s) == containerIDLen && hex(s) }

// validUID accepts the two existing formats, so that no other component beginning with "pod" is mistaken for a Pod.
func validUID(s string) bool {
	switch len(s) {
	case staticUIDLen:
		return hex(s)
	case uidLen:
		return s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' && hex(strings.ReplaceAll(s, "-", ""))
	default:
		return false
	}
}

func hex(s string) bool {
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') {
			return false
		}
	}
	return len(s) > 0
}
