package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/report"
)

// An interrupt comes while the API server creates the capture. The plugin must then print the generated name, which the user does not know.
func TestInterruptedCreationNamesTheCapture(t *testing.T) {
	s := newAPIServer(t)
	s.mu.Lock() // the API server, or a webhook, is slow
	r := start(t, s, nil, "capture", "web", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	time.Sleep(time.Second)
	r.signals <- os.Interrupt
	time.Sleep(200 * time.Millisecond)
	s.mu.Unlock()
	r.await(t, report.ExitInterrupted)
	time.Sleep(300 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := r.errOut.String(); len(s.captures) == 1 && !strings.Contains(text, "kubectl sonde download web-x7k2p -n shop") {
		t.Errorf("a capture is left, and the plugin said only %q", text)
	}
}
