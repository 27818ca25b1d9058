package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
)

// openPTY returns both ends of a terminal of that size (pty(7)).
func openPTY(t *testing.T, width, height uint16) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { outside.Close() })
	fd := int(outside.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	return outside, inside
}

func TestCaptureOnATerminal(t *testing.T) {
	outside, inside := openPTY(t, 60, 20)
	seen := newOutput()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := outside.Read(b)
			_, _ = seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	s := newAPIServer(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCapturing)
	r := start(t, s, inside, "capture", "web", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	seen.await(t, "Capturing")
	seen.await(t, "\x1b[4A") // heading, column headings and two Pods are overwritten
	s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	seen.await(t, "Downloaded")
	for l := range strings.SplitSeq(seen.String(), "\n") {
		for _, control := range []string{"\r", "\x1b[4A", "\x1b[3A", "\x1b[2A", "\x1b[1A", "\x1b[K", "\x1b[J"} {
			l = strings.ReplaceAll(l, control, "")
		}
		if len([]rune(l)) > 60 {
			t.Errorf("a line is wider than the terminal: %q", l)
		}
	}
	if r.errOut.String() != "" {
		t.Errorf("plain lines beside the terminal:\n%s", r.errOut)
	}
}

// On one terminal the events are above the table of the Pods, and no line is wider than the terminal.
func TestTraceOnATerminal(t *testing.T) {
	outside, inside := openPTY(t, 70, 20)
	seen := newOutput()
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := outside.Read(b)
			_, _ = seen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	s := runningTrace(t)
	r := startWith(t, s, func(o *Options) {
		o.Terminal, o.Streams.Out, o.Width = inside, inside, func() int { return 70 }
	}, "trace", "web", "-o", filepath.Join(t.TempDir(), "web.ndjson"))
	const cut = "  openat      1.50µs       3  /etc/w…"
	seen.await(t, cut)
	s.later("traces/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	seen.await(t, "Saved to ")
	lines := 0
	for l := range strings.SplitSeq(seen.String(), "\n") {
		for _, control := range []string{"\r", "\x1b[4A", "\x1b[3A", "\x1b[2A", "\x1b[1A", "\x1b[K", "\x1b[J"} {
			l = strings.ReplaceAll(l, control, "")
		}
		if !strings.Contains(l, "openat") || !strings.Contains(l, "00:00:0") {
			continue
		}
		if lines++; lines <= 5 && len([]rune(l)) > 70 {
			t.Errorf("a line is wider than the terminal: %q", l)
		}
	}
	if lines < 5 {
		t.Errorf("%d of 5 events are to be seen in\n%s", lines, seen)
	}
}
