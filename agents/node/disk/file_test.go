package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/agents/node/disk"
)

func TestResultHasItsNameOnceItIsPlaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.pcapng")
	f, err := disk.Create(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("header"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("before it is placed: %v", err)
	}
	if _, err := disk.Create(path, 0o644); err == nil || !strings.Contains(err.Error(), "never overwritten") {
		t.Errorf("a second one: %v", err)
	}
	if err := disk.Place(path); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "header" {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestResultNeverReplacesAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.pcapng")
	f, err := disk.Create(path, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.WriteFile(path, []byte("another's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := disk.Place(path); err == nil || !strings.Contains(err.Error(), "never overwritten") {
		t.Errorf("placed over another: %v", err)
	}
	if err := disk.Discard(path); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "another's" {
		t.Errorf("%q, %v", b, err)
	}
}
