package record

import (
	"path/filepath"
	"testing"
)

// testOutput creates an empty file.
func testOutput(t *testing.T) Output {
	t.Helper()
	out, err := CreateFile(filepath.Join(t.TempDir(), "a"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}
