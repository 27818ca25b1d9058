package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestContainerNames(t *testing.T) {
	root := t.TempDir()
	// As on a node whose logs are on another disk.
	if err := os.MkdirAll(filepath.Join(root, "data", "log", "containers"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/data/log", filepath.Join(root, "var", "log")); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		"web-0_shop_web-" + id + ".log", "web-0_shop_log-x-" + id2 + ".log", "other.log", "a_b_c-" + id[1:] + ".log",
		strings.Repeat("w", 130) + "_shop_" + strings.Repeat("c", 60) + "-" + id[:54] + ".log", // cut
	} {
		if err := os.Symlink("/var/log/pods/"+file, filepath.Join(root, "data", "log", "containers", file)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Finder{NodeRoot: root}.ContainerNames()
	if diff := cmp.Diff(map[string]string{id: "web", id2: "log-x"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := (Finder{NodeRoot: filepath.Join(root, "data")}).ContainerNames(); err == nil {
		t.Error("no error without the kubelet's directory")
	}
}

func FuzzParseLogLink(f *testing.F) {
	f.Add("web-0_shop_web-" + id + ".log")
	f.Add("_-" + id + ".log")
	f.Add("-.log")
	f.Fuzz(func(t *testing.T, file string) {
		id, name, ok := parseLogLink(file)
		if ok && (!validID(id) || name == "" || strings.Contains(name, "_") || !strings.HasSuffix(file, "_"+name+"-"+id+".log")) {
			t.Errorf("%q is read as %q, %q", file, id, name)
		}
	})
}
