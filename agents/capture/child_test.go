package capture

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/test/frames"
	"github.com/sonde-operator/sonde/test/sockets"
)

// These variables make the test binary a capture in a process of its own, which a test kills.
const (
	childDir     = "SONDE_CAPTURE_CHILD_DIR"
	childBackend = "SONDE_CAPTURE_CHILD_BACKEND"
	childOn      = "SONDE_CAPTURE_CHILD_ON"
	childNames   = "SONDE_CAPTURE_CHILD_NAMES" // packets name processes, or the process ends with the reason
	childUID     = "33333333-4444-4555-8666-777777777777"
	childBase    = "child"
)

// TestMain also runs that process: it captures in the namespace that it inherits as file 3, until it is killed.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(sockets.Run(m))
	}
	cand := all[slices.IndexFunc(all, func(w candidate) bool { return w.name == os.Getenv(childBackend) })]
	cfg := &Config{NetNS: os.NewFile(3, "netns"), Owner: childUID, Filters: frames.OnlyDiscard(), Dir: dir, Base: childBase}
	if on := os.Getenv(childOn); on != "" {
		cfg.Interfaces = []string{on}
	}
	if os.Getenv(childNames) != "" {
		cfg.Processes = &backend.Processes{}
	}
	c, err := cand.engine().Open(cfg)
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	if p := c.Account().Processes; p != nil && p.Message != "" {
		_, _ = os.Stderr.WriteString(p.Message)
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("attached\n")
	c.Run(context.Background())
}

// child is a capture in a process of its own.
type child struct {
	*exec.Cmd
	t *testing.T
}

// startChild starts a child and returns when it is attached. Without a name it captures all interfaces.
func startChild(t *testing.T, ns *os.File, cand candidate, dir, on string) *child {
	t.Helper()
	c := &child{exec.Command(os.Args[0]), t}
	c.Env = append(os.Environ(), childDir+"="+dir, childBackend+"="+cand.name, childOn+"="+on)
	c.ExtraFiles = []*os.File{ns}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "attached\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	return c
}

// kill returns when the process is gone, and the kernel has removed its objects.
func (c *child) kill() {
	c.t.Helper()
	if err := c.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	_ = c.Wait()
}
