package cluster

import (
	"bytes"
	"context"
	"fmt"
	osexec "os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Screen is what a command has written so far.
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

// String returns all that was written.
func (s *Screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Await waits until each of wants was written.
func (s *Screen) Await(t *testing.T, within time.Duration, wants ...string) {
	t.Helper()
	Eventually(t, within, "the plugin's words", func(context.Context) error {
		for _, want := range wants {
			if !strings.Contains(s.String(), want) {
				return fmt.Errorf("no %q in\n%s", want, s)
			}
		}
		return nil
	})
}

// StartPlugin starts the plugin.
func StartPlugin(t *testing.T, args ...string) (cmd *osexec.Cmd, out, errOut *Screen) {
	t.Helper()
	cmd, out, errOut = osexec.CommandContext(t.Context(), Plugin, args...), &Screen{}, &Screen{}
	cmd.Stdout, cmd.Stderr = out, errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, errOut
}
