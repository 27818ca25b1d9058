package capture

import (
	"bytes"
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

func TestBehind(t *testing.T) {
	runs := [][]byte{[]byte("ab"), []byte("c"), {}, []byte("def")}
	const all = "abcdef"
	for n := range len(all) + 1 {
		if got := bytes.Join(behind(runs, uint64(n)), nil); string(got) != all[n:] {
			t.Errorf("behind %d bytes is %q, want %q", n, got, all[n:])
		}
	}
	if !bytes.Equal(bytes.Join(runs, nil), []byte(all)) {
		t.Errorf("the runs are %q now", runs)
	}
}
