package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Screen collects the output of a running command.
type Screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *Screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

// String returns all output so far.
func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Await waits until the output contains each of wants.
func (s *Screen) Await(t *testing.T, within time.Duration, wants ...string) {
	t.Helper()
	Eventually(t, within, "the plugin's output", func(context.Context) error {
		for _, want := range wants {
			if !strings.Contains(s.String(), want) {
				return fmt.Errorf("want %q in the output\n%s", want, s)
			}
		}
		return nil
	})
}

// StartPlugin starts kubectl sonde and collects its output.
func StartPlugin(t *testing.T, args ...string) (cmd *exec.Cmd, out, errOut *Screen) {
	t.Helper()
	cmd, out, errOut = exec.CommandContext(t.Context(), Plugin, args...), &Screen{}, &Screen{}
	cmd.Stdout, cmd.Stderr = out, errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, errOut
}
