package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestV1Controllers(t *testing.T) {
	for name, tc := range map[string]struct {
		content string
		want    []string
	}{
		"v1":           {content: "9:name=systemd:/\n8:pids:/a\n1:cpu,cpuacct:/b:c\n0::/\n", want: []string{"name=systemd", "pids", "cpu,cpuacct"}},
		"v2":           {content: "0::/user.slice\n"},
		"nothing":      {content: ""},
		"cut off line": {content: "9:name"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, v1Controllers([]byte(tc.content))); diff != "" {
				t.Errorf("controllers (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzV1Controllers(f *testing.F) {
	f.Add([]byte("9:name=systemd:/\n0::/\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, c := range v1Controllers(content) {
			if c == "" {
				t.Error("a hierarchy without a name")
			}
		}
	})
}

// TestMakeCgroupFillsCpusets imitates the files of a cpuset hierarchy, whose
// new directories come up empty.
func TestMakeCgroupFillsCpusets(t *testing.T) {
	hierarchy := filepath.Join(t.TempDir(), "cpuset")
	values := map[string]string{"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n"}
	for _, dir := range []string{"", "sonde-cluster", "sonde-cluster/n1"} {
		d := filepath.Join(hierarchy, dir)
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for f, v := range values {
			if dir != "" {
				v = "\n"
			}
			if err := os.WriteFile(filepath.Join(d, f), []byte(v), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, err := makeCgroup(hierarchy, "sonde-cluster", "n1")
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range values {
		got, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil || string(got) != want {
			t.Errorf("%s is %q (%v), want %q", f, got, err, want)
		}
	}
}
