package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryIsHeldAndLetGo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "page_reporting_order")
	if err := os.WriteFile(file, []byte("5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	restore, held, err := holdMemory(file)
	if err != nil || !held || string(FileContent(file)) != never {
		t.Fatalf("held %v (%v), the setting is %q, want it held and %q", held, err, FileContent(file), never)
	}
	if err := restore(); err != nil || string(FileContent(file)) != "5" {
		t.Errorf("restored to %q (%v), want 5", FileContent(file), err)
	}
	if _, held, err := holdMemory(filepath.Join(dir, "none")); held || err != nil {
		t.Errorf("a kernel without the setting: held %v (%v), want neither", held, err)
	}
}
