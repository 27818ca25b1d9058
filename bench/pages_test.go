package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryIsHeldAndLetGo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "min_free_ms")
	if err := os.WriteFile(file, []byte("17\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	restore, held, err := holdMemory(dir, map[string]string{"min_free_ms": "60000", "of another kernel": "1"})
	if err != nil || !held || string(fileContent(file)) != "60000" {
		t.Fatalf("%v, %v, set to %q", held, err, fileContent(file))
	}
	if err := restore(); err != nil || string(fileContent(file)) != "17" {
		t.Errorf("%v, set back to %q", err, fileContent(file))
	}
	if _, held, err := holdMemory(t.TempDir(), putOff); held || err != nil {
		t.Errorf("a kernel without such settings: %v, %v", held, err)
	}
}
