package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is where and with what a run was made.
type machine struct {
	Date      time.Time         `json:"date"`
	CPU       string            `json:"cpu"`
	Cores     int               `json:"cores"`
	Memory    int64             `json:"memory"` // bytes
	Kernel    string            `json:"kernel"`
	Disk      string            `json:"disk"` // file system
	Go        string            `json:"go"`
	Versions  map[string]string `json:"versions"` // of the peers
	Ring      int64             `json:"ring"`     // bytes, Sonde's
	Held      bool              `json:"held"`     // free memory was not given back to a host
	Load      string            `json:"load"`     // when it began
	LoadAfter string            `json:"loadAfter"`
}

func describe(ctx context.Context, b *bench) machine {
	m := machine{
		Date: time.Now().UTC(), CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: kibibytes(fileContent("/proc/meminfo"), "MemTotal:"), Disk: fileSystem(b.disk), Go: runtime.Version(),
		Ring: b.ring, Load: load(), Held: b.held, Versions: map[string]string{},
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	for _, name := range []string{"tcpdump", "dumpcap", "netsniff-ng", "bpftrace", "strace"} {
		out, _ := exec.CommandContext(ctx, name, "--version").CombinedOutput()
		lines := strings.Split(string(out), "\n")
		m.Versions[name] = strings.TrimSuffix(strings.TrimSpace(lines[0]), ".")
		if len(lines) > 1 && strings.HasPrefix(lines[1], "libpcap") {
			m.Versions[name] += ", " + lines[1]
		}
	}
	return m
}

func fileContent(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}

// field returns the first value of name in a file of /proc with lines "name : value".
func field(path, name string) string {
	for line := range strings.Lines(string(fileContent(path))) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// load is the number of tasks that want a CPU, on average over the last minute.
func load() string {
	first, _, _ := bytes.Cut(fileContent("/proc/loadavg"), []byte{' '})
	return string(first)
}

// fileSystem is the type of the file system that holds a directory.
func fileSystem(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return ""
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	found, best := "", -1
	for line := range strings.Lines(string(fileContent("/proc/self/mountinfo"))) {
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

func gigabytes(n int64) string { return fmt.Sprintf("%.0f GiB", float64(n)/(1<<30)) }
