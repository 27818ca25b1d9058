package host

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/bench/figures"
)

// Describe returns the machine's properties and the versions of the peers.
func Describe(ctx context.Context, b *Env) figures.Machine {
	m := figures.Machine{
		Date: time.Now().UTC(), CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: kibibytes(FileContent("/proc/meminfo"), "MemTotal:"), Disk: fileSystem(b.Disk), Go: runtime.Version(),
		Ring: b.Ring, Load: Load(), Held: b.Held, Versions: map[string]string{},
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	for _, name := range []string{"tcpdump", "dumpcap", "netsniff-ng", "bpftrace", "strace", "tshark"} {
		out, _ := exec.CommandContext(ctx, name, "--version").CombinedOutput()
		lines := slices.DeleteFunc(strings.Split(string(out), "\n"), func(line string) bool { return strings.HasPrefix(line, "Running as user") }) // tshark
		m.Versions[name] = strings.TrimSuffix(strings.TrimSpace(lines[0]), ".")
		if len(lines) > 1 && strings.HasPrefix(lines[1], "libpcap") {
			m.Versions[name] += ", " + lines[1]
		}
	}
	return m
}

// FileContent returns the content of a file, or nil if it cannot be read.
func FileContent(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}

// field returns the first value of name in a file of /proc with lines "name : value".
func field(path, name string) string {
	for line := range strings.Lines(string(FileContent(path))) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// Load returns the load average of the last minute.
func Load() string {
	first, _, _ := bytes.Cut(FileContent("/proc/loadavg"), []byte{' '})
	return string(first)
}

// fileSystem returns the type of the file system of a directory.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	found, best := "", -1
	for line := range strings.Lines(string(FileContent("/proc/self/mountinfo"))) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 {
			continue
		}
		at := f[4]
		inside := at == "/" || dir == at || strings.HasPrefix(dir, at+"/")
		if inside && len(at) >= best {
			found, best = strings.Fields(after)[0], len(at)
		}
	}
	return found
}
