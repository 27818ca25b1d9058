package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// IDs of the simulated Pod. Its process is in a cgroup with a name like the kubelet's, and in the network namespace of
// the target.
const (
	PodUID      = "00000000-0000-4000-8000-00000000be4c"
	containerID = "00000000000000000000000000000000000000000000000000000000000be4c0"
)

// cgroupRoot returns the hierarchy of version 2 or, if there is none, the pids hierarchy of version 1.
func cgroupRoot() string {
	const root = "/sys/fs/cgroup"
	for _, v1 := range []string{"unified", "pids"} {
		if _, err := os.Stat(filepath.Join(root, v1, "cgroup.procs")); err == nil {
			return filepath.Join(root, v1)
		}
	}
	return root
}

// newCgroup creates the Pod's cgroup and returns its topmost parent below the root.
func newCgroup() (string, error) {
	for _, old := range leftBehind(cgroupRoot()) {
		// The cgroup of a killed run is empty. Another running bench has processes in its cgroup, and the same Pod UID
		// as this one.
		if err := removeCgroup(old); err != nil {
			return "", fmt.Errorf("another bench is running or has left a process behind; end it first, because two runs disturb each other: %w", err)
		}
	}
	base := filepath.Join(cgroupRoot(), workName())
	if err := os.MkdirAll(PodCgroup(base), 0o755); err != nil {
		return "", fmt.Errorf("make cgroup of the target: %w", err)
	}
	return base, nil
}

// PodCgroup returns the cgroup of the Pod's container below base.
func PodCgroup(base string) string {
	return filepath.Join(base, "kubepods", "pod"+PodUID, containerID)
}

// removeCgroup removes a cgroup and those below it. They must have no processes.
func removeCgroup(base string) error {
	var err error
	for dir := PodCgroup(base); len(dir) >= len(base); dir = filepath.Dir(dir) {
		if e := os.Remove(dir); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// leftBehind returns the entries of interrupted runs in a directory.
func leftBehind(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, workPrefix+"*"))
	return found
}
