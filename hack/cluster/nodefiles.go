package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	kubeletConfig   = "/run/kubelet.yaml"
	kubeProxyConfig = "/run/kube-proxy.yaml"
)

// diskDirs are directories of a node that grow: images, volumes, logs. They are on the machine's disk, in the node's
// directory below `run`. Everything else that a node writes stays in memory.
var diskDirs = []struct{ name, path string }{
	{"kubelet", kubeletRoot},
	{"containerd", "/var/lib/containerd"},
	{"cni", "/var/lib/cni"},
	{"log", "/var/log"},
}

// makeNodeFiles gives this process, the first of a node, its own file system that looks like a machine's.
func makeNodeFiles(c nodeConfig) error {
	for _, step := range []func(nodeConfig) error{
		ownRoot, mountCgroups, mountKernelFiles, shieldSysctls, bindDisk, mountNodeDisk, writeNodeConfigs,
	} {
		if err := step(c); err != nil {
			return err
		}
	}
	return nil
}

// ownRoot makes the root a copy-on-write view of the machine's root, in memory, so that nothing that a node or a Pod's
// hostPath writes stays on the machine.
func ownRoot(c nodeConfig) error {
	const scratch = "/mnt"
	root := filepath.Join(scratch, "root")
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	// Keep it open, because the next mount may cover it.
	base, err := os.Open(c.Base)
	if err != nil {
		return fmt.Errorf("open the cluster's directory: %w", err)
	}
	defer base.Close()
	err = errors.Join(
		mount("tmpfs", scratch, "tmpfs", 0, "mode=755"),
		mkdirs(root, filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")),
	)
	if err != nil {
		return err
	}
	data := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", scratch, scratch)
	if err := mount("overlay", root, "overlay", 0, data); err != nil {
		return err
	}
	err = errors.Join(
		mount("/dev", root+"/dev", "", unix.MS_BIND|unix.MS_REC, ""),
		// proc and sysfs of the node's own namespaces instead of the machine's.
		mount("proc", root+"/proc", "proc", 0, ""),
		mount("sysfs", root+"/sys", "sysfs", 0, ""),
		mount("tmpfs", root+"/run", "tmpfs", 0, "mode=755"),
		// Written to the disk, unlike the overlay around it.
		mkdirs(root+c.Base),
		mount(fmt.Sprintf("/proc/self/fd/%d", base.Fd()), root+c.Base, "", unix.MS_BIND|unix.MS_REC, ""),
	)
	if err != nil {
		return err
	}
	if err := unix.PivotRoot(root, root+scratch); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return errors.Join(
		os.Chdir("/"),
		unix.Unmount(scratch, unix.MNT_DETACH),
		// Mounts that Pods propagate must reach the node, as under systemd.
		mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""),
	)
}

// mount is mount(2) with an error that names source and target.
func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s %s at %s: %w", fstype, source, target, err)
	}
	return nil
}

func mkdirs(dirs ...string) error {
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("make a directory of the node: %w", err)
		}
	}
	return nil
}

// mountCgroups shows the node its own cgroups as the root of each hierarchy.
func mountCgroups(nodeConfig) error {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return fmt.Errorf("read the node's cgroups: %w", err)
	}
	controllers := v1Controllers(content)
	if len(controllers) == 0 {
		return mountUnified()
	}
	if err := mount("tmpfs", cgroupMount, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, c := range controllers {
		name, named := strings.CutPrefix(c, "name=")
		options := c
		if named {
			options = "none," + c
		}
		dir := filepath.Join(cgroupMount, name)
		if err := errors.Join(mkdirs(dir), mount("cgroup", dir, "cgroup", 0, options)); err != nil {
			return err
		}
	}
	return nil
}

// mountUnified is mountCgroups for v2. It moves the node's own processes into a child, because kubelet delegates
// controllers to the root's children. It is untested, because the test machines have v1.
func mountUnified() error {
	if err := mount("cgroup2", cgroupMount, "cgroup2", 0, ""); err != nil {
		return err
	}
	init := filepath.Join(cgroupMount, "init")
	if err := mkdirs(init); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(init, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return fmt.Errorf("move the node's processes out of its root cgroup: %w", err)
	}
	return handDownControllers(cgroupMount)
}

// mountKernelFiles mounts what eBPF agents expect on a machine. A kernel without one of these file systems still runs
// Pods.
func mountKernelFiles(nodeConfig) error {
	for _, m := range []struct{ fstype, at string }{
		{"bpf", "/sys/fs/bpf"}, {"debugfs", "/sys/kernel/debug"}, {"tracefs", "/sys/kernel/tracing"},
	} {
		if err := mount(m.fstype, m.at, m.fstype, 0, ""); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}

// kubeletSysctls are values that kubelet demands of settings of the whole machine. It exits if a value differs and
// cannot be set.
var kubeletSysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// shieldSysctls makes the machine's settings read-only inside the node and shows kubelet the values that it demands.
func shieldSysctls(nodeConfig) error {
	for _, s := range []string{"vm", "kernel", "fs"} {
		dir := filepath.Join("/proc/sys", s)
		err := errors.Join(
			mount(dir, dir, "", unix.MS_BIND, ""),
			mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""),
		)
		if err != nil {
			return err
		}
	}
	for name, value := range kubeletSysctls {
		shown := filepath.Join("/run", "sysctl-"+strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(shown, []byte(value+"\n"), 0o444); err != nil {
			return fmt.Errorf("write a setting for kubelet: %w", err)
		}
		if err := mount(shown, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	return nil
}

// bindDisk puts the growing directories of the node on the machine's disk.
func bindDisk(c nodeConfig) error {
	for _, d := range diskDirs {
		source := filepath.Join(c.layout().node(c.Name), d.name)
		if err := errors.Join(mkdirs(d.path), mount(source, d.path, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	return mkdirs("/var/log/pods", "/var/log/containers", "/run/lock", netnsDir)
}

// nodeValues are the values for the node's configuration files.
func nodeValues(c nodeConfig) map[string]any {
	return map[string]any{
		"Name": c.Name, "PodCIDR": c.PodCIDR, "PKI": c.layout().pki(),
		"Runc": c.Runc, "CNIPlugins": c.CNIPlugins, "PauseImage": pauseImage,
		"DNS": dnsIP, "PodNetwork": podNetwork,
		"Registry": fmt.Sprintf("http://%s:%d", controlPlaneIP, registryPort),
	}
}

// writeNodeConfigs writes the configuration files of the node's programs.
func writeNodeConfigs(c nodeConfig) error {
	const anyRegistry = "/etc/containerd/certs.d/_default"
	const cniConfigs = "/etc/cni/net.d"
	// containerd would use the machine's own CNI networks before ours.
	for _, d := range []string{cniConfigs, "/etc/containerd"} {
		if err := errors.Join(mkdirs(d), mount("tmpfs", d, "tmpfs", 0, "mode=755")); err != nil {
			return err
		}
	}
	values := nodeValues(c)
	// The machine's name servers cannot be reached from here. A server that refuses makes lookups of outside names fail
	// at once.
	if err := replaceFile("/etc/resolv.conf", "nameserver 127.0.0.1\n"); err != nil {
		return err
	}
	return errors.Join(
		mkdirs(anyRegistry),
		renderFile("/etc/containerd/config.toml", "containerd.toml", values),
		renderFile(filepath.Join(anyRegistry, "hosts.toml"), "hosts.toml", values),
		renderFile(filepath.Join(cniConfigs, "10-sonde.conflist"), "cni.conflist", values),
		renderFile(kubeletConfig, "kubelet.yaml", values),
		renderFile(kubeProxyConfig, "kube-proxy.yaml", values),
	)
}

// replaceFile replaces a file that may be a dangling symbolic link.
func replaceFile(path, content string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}
