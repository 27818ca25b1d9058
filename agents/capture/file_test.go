package capture

import (
	"path/filepath"
	"testing"
)

// testOutput is an empty file.
func testOutput(t *testing.T) output {
	t.Helper()
	out, err := createFile(filepath.Join(t.TempDir(), "a"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return out
}
