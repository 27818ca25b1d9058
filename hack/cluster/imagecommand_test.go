package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

func TestParseFiles(t *testing.T) {
	cases := map[string]struct {
		args    []string
		want    map[string]string
		wantErr bool
	}{
		"two files":   {args: []string{"manager=bin/m", "/agent=bin/a"}, want: map[string]string{"manager": "bin/m", "agent": "bin/a"}},
		"no file":     {args: []string{"manager="}, wantErr: true},
		"no path":     {args: []string{"/=bin/m"}, wantErr: true},
		"not a pair":  {args: []string{"manager"}, wantErr: true},
		"= in a file": {args: []string{"m=a=b"}, want: map[string]string{"m": "a=b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseFiles(tc.args)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageRefusesWhatIsNotABinary(t *testing.T) {
	spec := imageSpec{files: map[string]string{"m": "imagecommand.go"}}
	if err := spec.write(filepath.Join(t.TempDir(), "x.tar"), "sonde.local/x:1"); err == nil {
		t.Error("a text file was put into an image")
	}
}

func TestReadData(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "manifests", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one.yaml", "manifests/two.yaml", "manifests/deep/three.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		args    []string
		want    map[string]string
		wantErr bool
	}{
		"a file":         {args: []string{"/configs/a.yaml=" + dir + "/one.yaml"}, want: map[string]string{"configs/a.yaml": "one.yaml"}},
		"a directory":    {args: []string{"m=" + dir + "/manifests"}, want: map[string]string{"m/two.yaml": "manifests/two.yaml", "m/deep/three.yaml": "manifests/deep/three.yaml"}},
		"nothing":        {want: map[string]string{}},
		"what is absent": {args: []string{"m=" + dir + "/none"}, wantErr: true},
		"not a pair":     {args: []string{dir}, wantErr: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readData(tc.args)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); !tc.wantErr && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImageHasDataAndLabels(t *testing.T) {
	img, err := imageSpec{texts: map[string]string{"manifests/a.yaml": "a"}, labels: map[string]string{"a.b": "c"}}.build()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a.b": "c"}, config.Config.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	var content bytes.Buffer
	if _, err := io.Copy(&content, mutate.Extract(img)); err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(&content)
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("manifests/a.yaml is not in the image: %v", err)
		}
		if h.Name == "manifests/a.yaml" {
			if h.Mode != 0o644 {
				t.Errorf("mode %o, want it readable by all", h.Mode)
			}
			return
		}
	}
}
