package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ioctl(2) requests that stop and resume writing to a file system, see linux/fs.h.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// attachLoop attaches a file to a free loop device under a name of at most 63 bytes. The kernel frees the device when
// it is closed and no longer mounted.
func attachLoop(path, name string) (*os.File, error) {
	backing, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w (does the kernel have loop devices? run `modprobe loop`)", err)
	}
	defer control.Close()
	for {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(backing.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
		copy(config.Info.File_name[:len(config.Info.File_name)-1], name)
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		device.Close()
		// Another process took the device first.
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attach %s to %s: %w", path, device.Name(), err)
		}
	}
}

// loopDevices returns the attached loop devices, such as /dev/loop3, whose names begin with prefix.
func loopDevices(prefix string) ([]string, error) {
	// Only attached devices have this directory.
	attached, err := filepath.Glob("/sys/block/loop*/loop")
	if err != nil {
		return nil, fmt.Errorf("list loop devices: %w", err)
	}
	var found []string
	for _, dir := range attached {
		device := filepath.Join("/dev", filepath.Base(filepath.Dir(dir)))
		name, err := loopName(device)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(name, prefix) {
			found = append(found, device)
		}
	}
	slices.Sort(found)
	return found, nil
}

// loopName returns the name of a loop device, empty if the device was freed meanwhile.
func loopName(device string) (string, error) {
	f, err := os.Open(device)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open a loop device: %w", err)
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if errors.Is(err, unix.ENXIO) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the name of %s: %w", device, err)
	}
	name, _, _ := bytes.Cut(info.File_name[:], []byte{0})
	return string(name), nil
}

// thaw resumes writing to the file system of a device, mounted or not, if it is frozen.
func thaw(device string) error {
	dir, err := os.MkdirTemp("", "sonde-cluster-disk-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	// ENXIO: the device was freed meanwhile.
	if err := mount(device, dir, "ext4", unix.MS_NODEV, ""); errors.Is(err, unix.ENXIO) {
		return nil
	} else if err != nil {
		return err
	}
	return errors.Join(thawAt(dir), unix.Unmount(dir, 0))
}

func thawAt(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	// EINVAL: the file system is not frozen.
	if err := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("resume writing: %w", err)
	}
	return nil
}
