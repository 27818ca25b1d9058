package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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
