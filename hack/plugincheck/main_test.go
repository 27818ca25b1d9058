package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An error in the code for one system is found there, and not elsewhere.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":        "module example.com/m\n\ngo 1.24\n",
		"main.go":       "package main\n\nimport (\n\t\"strings\"\n\n\t\"example.com/m/a\"\n)\n\nfunc main() { println(a.Name, strings.ToUpper(a.Text)) }\n",
		"a/a_unix.go":   "//go:build !windows\n\npackage a\n\nconst Name, Text = 1, \"x\"\n",
		"a/a_darwin.go": "package a\n\nvar size uint32 = 1 << 32\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{
		"linux/arm64": "", "windows/amd64": "build constraints exclude all Go files", "darwin/arm64": "a_darwin.go:3",
	} {
		t.Run(platform, func(t *testing.T) {
			err := check(t.Context(), dir, ".", platform)
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}
