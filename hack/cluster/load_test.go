package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestParseArchiveArg(t *testing.T) {
	for name, tc := range map[string]struct {
		arg     string
		want    archiveArg
		wantErr string
	}{
		"file alone":       {arg: "a.tar", want: archiveArg{path: "a.tar"}},
		"file and name":    {arg: "x=y/a.tar=quay.io/a/b:1", want: archiveArg{path: "x=y/a.tar", name: "quay.io/a/b:1"}},
		"another suffix":   {arg: "image", want: archiveArg{path: "image"}},
		"name left out":    {arg: "a.tar=", wantErr: `"a.tar=": write a name after the =, or leave the = out`},
		"equals in a path": {arg: "x=y/a.tar", want: archiveArg{path: "x=y/a.tar"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseArchiveArg(tc.arg)
			checkErr(t, err, tc.wantErr)
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestOpenArchive(t *testing.T) {
	img, err := imageSpec{texts: map[string]string{"etc/motd": "hello"}}.build()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("quay.io/sonde/sonde:dev")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(archive, tag, img); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		as, want string
	}{
		"own name":     {want: "quay.io/sonde/sonde:dev"},
		"another name": {as: "example.test/x:1", want: "example.test/x:1"},
		"of docker":    {as: "busybox", want: "docker.io/library/busybox:latest"},
	} {
		t.Run(name, func(t *testing.T) {
			opened, tags, err := archiveArg{path: archive, name: tc.as}.open()
			if err != nil {
				t.Fatal(err)
			}
			if len(tags) != 1 || nodeImageName(tags[0]) != tc.want {
				t.Errorf("names %v, want %s", tags, tc.want)
			}
			want, err1 := img.Digest()
			got, err2 := opened.ConfigName()
			wantConfig, err3 := img.ConfigName()
			if err := errors.Join(err1, err2, err3); err != nil || got != wantConfig {
				t.Errorf("opened %s, want %s of %s: %v", got, wantConfig, want, err)
			}
		})
	}
	if _, _, err := (archiveArg{path: archive + ".gone"}).open(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestLayer lists the contents of the layer of a small image.
func TestLayer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("#!"), 0o700); err != nil {
		t.Fatal(err)
	}
	spec := imageSpec{
		files: map[string]string{"usr/bin/program": program},
		texts: map[string]string{"etc/passwd": "root"},
		links: map[string]string{"usr/bin/alias": "program"},
		dirs:  []string{"tmp"},
	}
	content, err := spec.layer()
	if err != nil {
		t.Fatal(err)
	}
	again, err := spec.layer()
	if err != nil || !bytes.Equal(content, again) {
		t.Errorf("the same spec gives another layer (%v)", err)
	}
	type entry struct {
		Name, Link string
		Mode       int64
	}
	var got []entry
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, entry{h.Name, h.Linkname, h.Mode})
	}
	want := []entry{
		{"tmp/", "", 0o1777},
		{"usr/", "", 0o755},
		{"usr/bin/", "", 0o755},
		{"usr/bin/program", "", 0o755},
		{"etc/", "", 0o755},
		{"etc/passwd", "", 0o644},
		{"usr/bin/alias", "program", 0o777},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}
