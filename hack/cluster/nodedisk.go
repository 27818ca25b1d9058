package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A node may have a disk of its own for kubelet's files, mainly Pods' volumes: an ext4 file system in a sparse file, on a
// loop device. Tests fill it, and freeze it like a disk that hangs, without harm to the machine.
//
// The file system is mounted in the node's mount namespace only, and the loop device frees itself with its last user. So
// both go with the node's last process. Only a frozen file system stays, see releaseDisks.

// kubeletRoot is where kubelet keeps Pods' volumes, on the node's own disk if there is one.
const kubeletRoot = "/var/lib/kubelet"

// mkfs creates the file system of a node's disk; package e2fsprogs.
const mkfs = "mkfs.ext4"

// nodeDisk is the file that holds the disk of a node.
func (l layout) nodeDisk(name string) string { return filepath.Join(l.node(name), "disk.ext4") }

// loopName is the name of the loop device of a node's disk, which identifies the device's owner in the kernel.
func (l layout) loopName(node string) string { return l.netnsPrefix() + node }

// makeNodeDisk creates the disk of a node with this many bytes. The file is sparse and grows as it is written to.
func makeNodeDisk(ctx context.Context, l layout, name string, bytes size) error {
	path := l.nodeDisk(name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the disk of node %s: %w", name, err)
	}
	if err := errors.Join(f.Truncate(int64(bytes)), f.Close()); err != nil {
		return fmt.Errorf("size the disk of node %s: %w", name, err)
	}
	program, err := lookPath(mkfs)
	if err != nil {
		return fmt.Errorf("make the disk of node %s: %w", name, err)
	}
	// Reserve no blocks for root, so that a full disk is full for all. Do not write zeros where the file has holes.
	format := exec.CommandContext(ctx, program, "-q", "-F", "-m", "0", "-E", "assume_storage_prezeroed=1", "-L", name, path)
	if err := runQuietly(format); err != nil {
		return fmt.Errorf("make the file system of node %s: %w", name, err)
	}
	return nil
}

// mountNodeDisk mounts the disk of a node inside the node, if it has one.
func mountNodeDisk(c nodeConfig) error {
	l := c.layout()
	path := l.nodeDisk(c.Name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// Two loop devices for one file, mounted independently, would corrupt it.
	if err := awaitDetached(l, c.Name, killPatience); err != nil {
		return err
	}
	device, err := attachLoop(path, l.loopName(c.Name))
	if err != nil {
		return fmt.Errorf("attach the disk of node %s: %w", c.Name, err)
	}
	// From here on the mount holds the device.
	defer device.Close()
	return errors.Join(mkdirs(kubeletRoot), mount(device.Name(), kubeletRoot, "ext4", unix.MS_NODEV, ""))
}

// awaitDetached waits until the disk of a node is detached, because an earlier run of the node may still be ending.
func awaitDetached(l layout, node string, patience time.Duration) error {
	return awaitLoops(l.loopName(node), patience, func(devices []string) error {
		return fmt.Errorf("the disk of node %s is still attached, as %s, and may not be attached twice: run `cluster down`", node, strings.Join(devices, ", "))
	})
}

// releaseDisks thaws the disks of all nodes. A process that writes to a frozen file system does not even die of
// SIGKILL, and the frozen file system outlives its last mount. A new mount of the device reaches it again.
func releaseDisks(l layout) error {
	devices, err := loopDevices(l.netnsPrefix())
	if err != nil {
		return err
	}
	for _, d := range devices {
		if err := thaw(d); err != nil {
			return fmt.Errorf("thaw the disk of a node, %s: %w", d, err)
		}
	}
	return nil
}

// awaitDisks waits until the kernel has freed all disks of a cluster whose processes have ended.
func awaitDisks(l layout) error {
	return awaitLoops(l.netnsPrefix(), killPatience, func(devices []string) error {
		return fmt.Errorf("disks of nodes are still attached: find the processes that hold %s with `grep -l loop /proc/*/mountinfo`, end them and run `cluster down` again", strings.Join(devices, ", "))
	})
}

// awaitLoops waits until no loop device has a name that begins with prefix.
func awaitLoops(prefix string, patience time.Duration, complaint func(devices []string) error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(killInterval) {
		devices, err := loopDevices(prefix)
		if err != nil || len(devices) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return complaint(devices)
		}
	}
}
