package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

// WriteFigures writes a part of a docs page into $SONDE_FIGURES for hack/shard.sh. It does nothing if the variable is
// empty.
func WriteFigures(t *testing.T, part, text string) {
	t.Helper()
	dir := os.Getenv("SONDE_FIGURES")
	if dir == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, part+".md"), []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}
