package keeper

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/account"
	"github.com/sonde-operator/sonde/internal/captureconfig"
)

// TestStopOnAFullDisk fills the disk of the control volume: the probe must be told to end all the same, and why.
func TestStopOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_PRIVILEGED") == "1" {
			t.Fatal("this test needs root, and REQUIRE_PRIVILEGED=1 promises it")
		}
		t.Skip("needs root")
	}
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
