// Package benchtest opens a benchmark environment for the tests of capture, trace and intercept.
package benchtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/sonde-operator/sonde/test/bench/host"
	"github.com/sonde-operator/sonde/test/privileged"
)

// agentDir is where the agent is built for all tests of a package; Main removes it.
var agentDir string

// builtAgent builds the agent once and returns its path.
var builtAgent = sync.OnceValues(func() (string, error) {
	var err error
	if agentDir, err = os.MkdirTemp("", "bench"); err != nil {
		return "", err
	}
	path := filepath.Join(agentDir, "agent")
	build := exec.Command("go", "build", "-o", path, "github.com/sonde-operator/sonde/cmd/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

// Open returns an environment with the agent of this tree. It is closed after the test, which fails if anything is
// left.
func Open(t *testing.T) *host.Env {
	t.Helper()
	privileged.Need(t)
	lock(t)
	agent, err := builtAgent()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b, err := host.New(t.Context(), &host.Settings{Agent: agent, Disk: dir, Memory: "/dev/shm", Stream: 8 << 20, Ring: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cgroup, dirs := b.Cgroup, []string{b.Disk, b.Memory}
		if err := b.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, left := range append(dirs, cgroup) {
			if _, err := os.Stat(left); err == nil {
				t.Errorf("%s is left behind", left)
			}
		}
	})
	return b
}

// lock waits for the tests of other packages, which go test runs at the same time: host.New refuses a second benchmark.
func lock(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "sonde-benchtest.lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// Main runs the tests, or a role if the test binary was started as a child process of bench.
func Main(m *testing.M, roles map[string]func(args []string) error) {
	if ran, err := host.RunRole(os.Args[1:], roles); ran {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if agentDir != "" {
		_ = os.RemoveAll(agentDir)
	}
	os.Exit(code)
}
