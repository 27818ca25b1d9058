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
		t.Fatalf("%v, %v, set to %q", held, err, FileContent(file))
	}
	if err := restore(); err != nil || string(FileContent(file)) != "5" {
		t.Errorf("%v, set back to %q", err, FileContent(file))
	}
	if _, held, err := holdMemory(filepath.Join(dir, "none")); held || err != nil {
		t.Errorf("a kernel without the setting: %v, %v", held, err)
	}
}
