package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/test/privileged"
)

// The stop request and its reason must reach the probe even on a full disk.
func TestStopOnAFullDisk(t *testing.T) {
	privileged.Need(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	c, err := openControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := c.stop(account.ReasonAccessRevoked); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, captureconfig.StopFile))
	if err != nil || strings.TrimSpace(string(b)) != account.ReasonAccessRevoked {
		t.Errorf("the stop file says %q, %v", b, err)
	}
}

// A restarted keeper keeps its earlier stop request.
func TestStopOutlivesItsKeeper(t *testing.T) {
	dir := t.TempDir()
	const want = account.ReasonAccessRevoked
	for range 2 {
		c, err := openControl(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.stop(want), c.close()); err != nil {
			t.Fatal(err)
		}
		if c, err = openControl(dir); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, captureconfig.StopFile))
		if err = errors.Join(err, c.close()); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("the stop file says %q, %v; want %s", b, err, want)
		}
	}
}

// A restarted keeper has no readers yet, whatever its predecessor had.
func TestFollowersEndWithTheirKeeper(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, captureconfig.FollowFile)
	for range 2 {
		c, err := openControl(dir)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err == nil && string(b) != "0" {
			t.Errorf("a keeper without readers says %q", b)
		}
		leave, err := c.follow()
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.follow()
		leave()
		if b, rerr := os.ReadFile(path); err != nil || rerr != nil || string(b) != "1" {
			t.Errorf("one of two readers is left, and the file says %q, %v, %v", b, err, rerr)
		}
		if err := c.close(); err != nil {
			t.Fatal(err)
		}
	}
}
