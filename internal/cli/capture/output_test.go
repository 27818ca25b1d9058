package capture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

func TestDefaultPath(t *testing.T) {
	at := time.Date(2026, 3, 1, 13, 2, 3, 0, time.FixedZone("east", 3600))
	if got := (Output{}).DefaultPath("web", at); got != "web-20260301T120203Z.pcapng" {
		t.Errorf("file %q", got)
	}
	if got := (Output{Separate: true}).DefaultPath("web", at); got != "web-20260301T120203Z" {
		t.Errorf("directory %q", got)
	}
	if got := (Output{Form: NDJSON}).DefaultPath("web", at); got != "web-20260301T120203Z.ndjson" {
		t.Errorf("file of a trace %q", got)
	}
	if got := (Output{Form: Flap}).DefaultPath("web", at); got != "web-20260301T120203Z" {
		t.Errorf("directory of FLAP's files %q", got)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.pcapng")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		out     Output
		wantErr string
	}{
		"a new file":                       {out: Output{Path: filepath.Join(dir, "new.pcapng")}},
		"standard output":                  {out: Output{Path: "-"}},
		"a new directory":                  {out: Output{Path: filepath.Join(dir, "new") + "/", Separate: true}},
		"a directory":                      {out: Output{Path: dir, Separate: true}},
		"overwriting":                      {out: Output{Path: there, Force: true}},
		"a file that is there":             {Output{Path: there}, "exists: choose another name, or overwrite it with --force"},
		"a directory for one file":         {Output{Path: dir}, "is a directory: name a file, or add --keep-separate"},
		"a file for several":               {Output{Path: there, Separate: true}, "--keep-separate needs a directory"},
		"several into the standard output": {Output{Path: "-", Separate: true}, "name a directory, or omit --keep-separate"},
		"FLAP's files":                     {out: Output{Path: dir, Form: Flap}},
		"a file for FLAP's":                {Output{Path: there, Form: Flap}, "a trace of format flap needs a directory"},
		"FLAP into the standard output":    {Output{Path: "-", Form: Flap}, "which cannot be written to standard output: name a directory"},
		"nowhere":                          {Output{Path: filepath.Join(dir, "no", "where")}, "no such file or directory"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := tc.out.Check()
			if (err == nil) != (tc.wantErr == "") || (err != nil && !strings.Contains(err.Error(), tc.wantErr)) {
				t.Errorf("error %v, want %q", err, tc.wantErr)
			}
		})
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("checking left behind: %q", got)
	}
}

func TestWhatAppearedMeanwhileIsNotOverwritten(t *testing.T) {
	a := file(1)
	path := filepath.Join(t.TempDir(), "web.pcapng")
	s := saver(cluster{"u1/a.pcapng": a})
	s.OnMerge = func() {
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			t.Error(err)
		}
	}
	pods := []v1alpha1.PodResult{pod("u1", "a", result("a.pcapng", a))}
	if _, err := s.Save(t.Context(), pods, Output{Path: path}); err == nil || !strings.Contains(err.Error(), "--force") {
		t.Errorf("error %v, want one about --force", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if _, err := s.Save(t.Context(), pods, Output{Path: path, Force: true}); err != nil {
		t.Fatal(err)
	}
	if got := times(t, path); len(got) != 1 {
		t.Errorf("with --force there are %d packets", len(got))
	}
}

// A file system without hard links must not let a file overwrite one that was created since Check, or an earlier file of the same Pod.
func TestRenameToNew(t *testing.T) {
	dir := t.TempDir()
	file, path := filepath.Join(dir, ".part"), filepath.Join(dir, "web.pcapng")
	for _, content := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := renameToNew(file, path); (err == nil) != (content == "first") {
			t.Errorf("%s file: %v", content, err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "first" {
		t.Errorf("the file has %q, %v", got, err)
	}
}
