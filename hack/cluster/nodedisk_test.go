package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// diskOf creates the disk of a node of a cluster that does not exist otherwise, and mounts it.
func diskOf(t *testing.T) (l layout, mounted, device string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
			t.Fatal("REQUIRE_PRIVILEGED=1 but not root")
		}
		t.Skip("needs root")
	}
	// No cluster of this machine has this number, so none is mistaken for this one.
	l = layout{base: t.TempDir(), instance: os.Getpid() + 1000}
	if err := os.MkdirAll(l.node("n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := makeNodeDisk(t.Context(), l, "n1", minNodeDisk); err != nil {
		t.Fatal(err)
	}
	f, err := attachLoop(l.nodeDisk("n1"), l.loopName("n1"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mounted = t.TempDir()
	if err := mount(f.Name(), mounted, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := releaseDisks(l); err != nil {
			t.Error(err)
		}
		_ = unix.Unmount(mounted, unix.MNT_DETACH)
	})
	return l, mounted, f.Name()
}

func freeze(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		t.Fatal(err)
	}
}

func TestNodeDiskIsSparse(t *testing.T) {
	l, _, _ := diskOf(t)
	info, err := os.Stat(l.nodeDisk("n1"))
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > int64(minNodeDisk)/10 {
		t.Errorf("an empty disk of %d bytes takes %d", minNodeDisk, used)
	}
}

func TestDisksAreFoundByName(t *testing.T) {
	l, _, device := diskOf(t)
	got, err := loopDevices(l.netnsPrefix())
	if err != nil || !slices.Equal(got, []string{device}) {
		t.Errorf("got %v, %v, want %s", got, err, device)
	}
	left, err := anythingLeft(l)
	if err != nil || !left {
		t.Errorf("with a disk attached, anythingLeft = %v, %v, want true", left, err)
	}
	other := layout{base: l.base, instance: l.instance + 1}
	if got, err := loopDevices(other.netnsPrefix()); err != nil || len(got) > 0 {
		t.Errorf("another cluster finds the disks %v (%v), want none", got, err)
	}
}

// TestFrozenDiskIsReleased leaves a frozen file system without a mount, as a killed cluster does.
func TestFrozenDiskIsReleased(t *testing.T) {
	l, mounted, device := diskOf(t)
	freeze(t, mounted)
	if err := unix.Unmount(mounted, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := releaseDisks(l); err != nil {
		t.Fatal(err)
	}
	if err := awaitDisks(l); err != nil {
		t.Errorf("%s is not freed: %v", device, err)
	}
	if err := releaseDisks(l); err != nil {
		t.Errorf("release without frozen disks: %v", err)
	}
}

// A process that hangs on a frozen disk cannot be killed, so the disk must be thawed.
func TestWriterOfAFrozenDiskGoesOn(t *testing.T) {
	l, mounted, _ := diskOf(t)
	f, err := os.Create(filepath.Join(mounted, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	freeze(t, mounted)
	wrote := make(chan error, 1)
	go func() {
		_, err := f.WriteString("late")
		wrote <- err
	}()
	if err := releaseDisks(l); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}

func TestNoSecondAttachmentOfADisk(t *testing.T) {
	l, mounted, device := diskOf(t)
	checkErr(t, awaitDetached(l, "n1", 0), "the disk of node n1 is still attached, as "+device+", and may not be attached twice: run `cluster down`")
	if err := unix.Unmount(mounted, 0); err != nil {
		t.Fatal(err)
	}
	checkErr(t, awaitDetached(l, "n1", killPatience), "")
}

func TestDiskIsNotMadeTwice(t *testing.T) {
	l := layout{base: t.TempDir()}
	if err := os.MkdirAll(l.node("n1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(l.nodeDisk("n1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeNodeDisk(t.Context(), l, "n1", minNodeDisk); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
}
