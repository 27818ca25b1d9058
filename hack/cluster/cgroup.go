package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupMount = "/sys/fs/cgroup"

// hierarchies returns the mount points of the machine's cgroup hierarchies: each v1 controller, or the one of v2. v1
// directories are named by controller ("cpu", "systemd" for name=systemd), as in /proc/self/cgroup.
func hierarchies() ([]string, error) {
	unified, err := unifiedCgroups()
	if err != nil {
		return nil, err
	}
	if unified {
		return []string{cgroupMount}, nil
	}
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("read this process's cgroups: %w", err)
	}
	var dirs []string
	for _, c := range v1Controllers(content) {
		dir := filepath.Join(cgroupMount, strings.TrimPrefix(c, "name="))
		if _, err := os.Stat(dir); err == nil {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("no cgroup hierarchy is mounted below %s", cgroupMount)
	}
	return dirs, nil
}

// unifiedCgroups reports whether the machine has only cgroup v2.
func unifiedCgroups() (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupMount, &st); err != nil {
		return false, fmt.Errorf("inspect %s (are cgroups mounted?): %w", cgroupMount, err)
	}
	return st.Type == unix.CGROUP2_SUPER_MAGIC, nil
}

// v1Controllers returns the controllers of each v1 hierarchy in the text of /proc/<pid>/cgroup, in the format of
// cgroups(7): "id:controllers:path". The v2 line has no controllers.
func v1Controllers(content []byte) []string {
	var all []string
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if f := strings.SplitN(lines.Text(), ":", 3); len(f) == 3 && f[1] != "" {
			all = append(all, f[1])
		}
	}
	return all
}

// joinCgroup moves this process into the cluster's cgroup called part, in every hierarchy. Children inherit it, which
// is how `down` finds them.
func joinCgroup(l layout, part string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range dirs {
		dir, err := makeCgroup(h, l.name(), part)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return fmt.Errorf("join the cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// makeCgroup creates a cgroup below the hierarchy, one path element at a time. A new cpuset is empty and accepts no
// process until it is filled.
func makeCgroup(hierarchy string, elements ...string) (string, error) {
	dir := hierarchy
	for _, e := range elements {
		parent := dir
		dir = filepath.Join(dir, e)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("make a cgroup: %w", err)
		}
		if hierarchy == cgroupMount {
			if err := handDownControllers(parent); err != nil {
				return "", err
			}
		}
		if filepath.Base(hierarchy) != "cpuset" {
			continue
		}
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := inheritCpuset(parent, dir, f); err != nil {
				return "", err
			}
		}
	}
	return dir, nil
}

// handDownControllers lets the children of a v2 cgroup use all of its controllers. It is untested, because the test
// machines have v1.
func handDownControllers(dir string) error {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of a cgroup: %w", err)
	}
	for c := range strings.FieldsSeq(string(content)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil {
			return fmt.Errorf("hand the controller %s down from %s: %w", c, dir, err)
		}
	}
	return nil
}

func inheritCpuset(parent, child, file string) error {
	own, err := os.ReadFile(filepath.Join(child, file))
	if err != nil || len(bytes.TrimSpace(own)) > 0 {
		return err
	}
	value, err := os.ReadFile(filepath.Join(parent, file))
	if err != nil {
		return fmt.Errorf("read the parent's cpuset: %w", err)
	}
	if err := os.WriteFile(filepath.Join(child, file), value, 0o644); err != nil {
		return fmt.Errorf("fill a cpuset: %w", err)
	}
	return nil
}

// clusterCgroups returns the directories of the cgroups of the cluster, or of one part of it, children first.
func clusterCgroups(l layout, part ...string) ([]string, error) {
	name := filepath.Join(append([]string{l.name()}, part...)...)
	tops, err := filepath.Glob(filepath.Join(cgroupMount, "*", name))
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var all []string
	for _, top := range append(tops, filepath.Join(cgroupMount, name)) {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			// Cgroups vanish while they are listed.
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
	}
	slices.Reverse(all)
	return all, nil
}

// clusterProcesses returns the pids of all processes in the cgroups of the cluster, or of one part of it.
func clusterProcesses(l layout, part ...string) ([]int, error) {
	dirs, err := clusterCgroups(l, part...)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, d := range dirs {
		content, err := os.ReadFile(filepath.Join(d, "cgroup.procs"))
		if err != nil {
			continue // The cgroup and its processes are gone.
		}
		for f := range strings.FieldsSeq(string(content)) {
			// 0 stands for a process in another pid namespace.
			if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

const (
	// killPatience is how long processes may take to die after SIGKILL.
	killPatience = 20 * time.Second
	killInterval = 50 * time.Millisecond
)

// killAll kills every process of the cluster, or of one part of it, and returns their number. It repeats until none is
// left, because a process may fork while its siblings are killed.
func killAll(l layout, part ...string) (int, error) {
	killed := map[int]bool{}
	for deadline := time.Now().Add(killPatience); ; {
		pids, err := clusterProcesses(l, part...)
		if err != nil || len(pids) == 0 {
			return len(killed), err
		}
		for _, pid := range pids {
			killed[pid] = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return len(killed), fmt.Errorf("processes %v of the cluster did not die within %s of SIGKILL", pids, killPatience)
		}
		time.Sleep(killInterval)
	}
}

// removeCgroups removes the cgroups of the cluster, or of one part of it. It retries, because the kernel may count a
// dead process for a moment.
func removeCgroups(l layout, part ...string) error {
	for deadline := time.Now().Add(killPatience); ; {
		dirs, err := clusterCgroups(l, part...)
		if err != nil || len(dirs) == 0 {
			return err
		}
		var last error
		for _, d := range dirs {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = err
			}
		}
		if last != nil && time.Now().After(deadline) {
			return fmt.Errorf("remove the cluster's cgroups: %w", last)
		}
		time.Sleep(killInterval)
	}
}
