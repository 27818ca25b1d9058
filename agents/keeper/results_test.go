package keeper

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

func TestServed(t *testing.T) {
	listed := []account.File{{Name: "web-1.pcapng"}, {Name: "notes.txt"}}
	tests := map[string]bool{
		"web-1.pcapng":                       true,
		"other.pcapng":                       true,
		"notes.txt":                          true,
		"progress.json":                      false,
		"":                                   false,
		".":                                  false,
		"..":                                 false,
		".hidden.pcapng":                     false,
		"../results/web-1.pcapng":            false,
		"dir/web-1.pcapng":                   false,
		"/etc/x.pcapng":                      false,
		"x\x00.pcapng":                       false,
		strings.Repeat("x", 255) + ".pcapng": false,
	}
	for name, want := range tests {
		if got := isServed(name, listed); got != want {
			t.Errorf("served(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestOpenOnlyRegularFiles(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, filepath.Join(outside, "secret.pcapng"), "secret")
	write(t, filepath.Join(dir, "web.pcapng"), "packets")
	for _, make := range []error{
		os.Symlink(filepath.Join(outside, "secret.pcapng"), filepath.Join(dir, "link.pcapng")),
		os.Symlink("web.pcapng", filepath.Join(dir, "inner.pcapng")),
		os.Symlink("/dev/zero", filepath.Join(dir, "zero.pcapng")),
		os.Mkdir(filepath.Join(dir, "directory.pcapng"), 0o755),
		unix.Mkfifo(filepath.Join(dir, "fifo.pcapng"), 0o644),
		listenUnix(t, filepath.Join(dir, "socket.pcapng")),
	} {
		if make != nil {
			t.Fatal(make)
		}
	}
	r, err := openResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()

	for _, name := range []string{
		"link.pcapng", "inner.pcapng", "zero.pcapng", "directory.pcapng", "fifo.pcapng", "socket.pcapng", "missing.pcapng",
		"..", ".", "../" + filepath.Base(outside) + "/secret.pcapng", filepath.Join(outside, "secret.pcapng"), "",
	} {
		f, _, err := r.open(name)
		if !errors.Is(err, errNotServed) {
			t.Errorf("open(%q): %v, want %v", name, err, errNotServed)
		}
		if f != nil {
			f.Close()
		}
	}
	f, size, err := r.open("web.pcapng")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "packets" || size != int64(len(b)) {
		t.Errorf("read %q of %d bytes, %v", b, size, err)
	}
}

// listenUnix makes a socket, the only kind of file whose open fails.
func listenUnix(t *testing.T, path string) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return unix.Bind(fd, &unix.SockaddrUnix{Name: path})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
