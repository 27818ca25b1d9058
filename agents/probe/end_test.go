package probe

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

func TestReadStop(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("plain"), account.ReasonStopped)
	write(t, path("large"), strings.Repeat("x", 1<<20))
	for _, err := range []error{
		os.Symlink(path("plain"), path("link")), os.Symlink("/dev/zero", path("device")),
		os.Mkdir(path("directory"), 0o755), unix.Mkfifo(path("fifo"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err := readSmall(path("plain")); err != nil || string(b) != account.ReasonStopped {
		t.Errorf("plain: %q, %v", b, err)
	}
	if b, err := readSmall(path("large")); err != nil || len(b) != maxReason {
		t.Errorf("large: %d bytes, %v", len(b), err)
	}
	if _, err := readSmall(path("missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	for _, name := range []string{"link", "device", "directory", "fifo"} {
		if b, err := readSmall(path(name)); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func FuzzParseReason(f *testing.F) {
	f.Add([]byte("Stopped"))
	f.Add([]byte(" AccessRevoked\n"))
	f.Add([]byte{0, 0xff})
	known := []string{account.ReasonStopped, account.ReasonTargetGone, account.ReasonAccessRevoked}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got := parseReason(b); !slices.Contains(known, got) {
			t.Errorf("reason %q", got)
		}
	})
}

func TestFileBase(t *testing.T) {
	long := strings.Repeat("x", 253)
	tests := map[string]struct {
		pod, want string
		most      int
	}{
		"short": {pod: "web-1", want: "web-1-ab12", most: maxFileBase},
		"fits":  {pod: long[:242], want: long[:242] + "-ab12", most: maxFileBase},
		"cut":   {pod: long, want: long[:233] + "-1329e1bd-ab12", most: maxFileBase},
		"ring":  {pod: long, want: long[:68] + "-1329e1bd-ab12", most: maxRingBase},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := fileBase(tc.pod, "ab12", tc.most)
			if got != tc.want || len(got) > tc.most {
				t.Errorf("fileBase: %q, want %q", got, tc.want)
			}
		})
	}
	if fileBase(long+"a", "ab12", maxRingBase) == fileBase(long+"b", "ab12", maxRingBase) {
		t.Error("two Pods share a file name")
	}
}
