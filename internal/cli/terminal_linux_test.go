package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	seen := screenOf(outside)
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
	seen := screenOf(outside)
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

// screenOf collects what is written to the outside of a terminal.
func screenOf(outside *os.File) *output {
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
	return seen
}

// termios returns the mode of a terminal.
func termios(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	mode, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *mode
}

// A table of conversations is below the Pods, keys sort it, q stops the capture, and the terminal is as it was.
func TestCaptureTop(t *testing.T) {
	outside, inside := openPTY(t, 120, 24)
	before := termios(t, inside)
	seen := screenOf(outside)
	s := runningCapture(t)
	path := filepath.Join(t.TempDir(), "web.pcapng")
	r := startWith(t, s, func(o *Options) { o.Terminal, o.Keyboard = inside, inside }, "capture", "web", "--top", "-o", path)
	seen.await(t, "conversations by packets/s. Keys: p packets/s, b bytes/s, t total bytes, r retransmissions, n name, q quit")
	seen.await(t, "120 B  ") // the total of the two packets
	if termios(t, inside) == before {
		t.Error("the terminal is not in raw mode")
	}
	for key, by := range map[string]string{"b": "by bytes/s", "n": "by name"} {
		if _, err := outside.WriteString(key); err != nil {
			t.Fatal(err)
		}
		seen.await(t, by)
	}
	if _, err := outside.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	r.await(t, report.ExitOK)
	if got := timesIn(t, path); len(got) != 5 {
		t.Errorf("packets %v", got)
	}
	if termios(t, inside) != before {
		t.Error("the terminal is left in raw mode")
	}
	if len(s.captures) != 0 {
		t.Error("the capture is left")
	}
}

// The table and standard output have the packets of one stream.
func TestCaptureTopAndLive(t *testing.T) {
	outside, inside := openPTY(t, 120, 24)
	seen := screenOf(outside)
	s := runningCapture(t)
	r := startWith(t, s, func(o *Options) { o.Terminal, o.Keyboard = inside, inside }, "capture", "web", "--top", "--live", "--delay", "10ms")
	awaitPackets(t, r.out.String, 2)
	seen.await(t, "120 B  ") // the total of the two packets
	s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	if got := times(t, []byte(r.out.String())); len(got) != 5 {
		t.Errorf("packets %v", got)
	}
	if s.streams["u1"] != 1 || s.streams["u2"] != 1 {
		t.Errorf("streams of the Pods %v, want one each", s.streams)
	}
}

// A table that fails does not end the stream.
func TestTeeWriter(t *testing.T) {
	var out bytes.Buffer
	in, table := io.Pipe()
	_ = in.CloseWithError(errors.New("damaged"))
	if n, err := (teeWriter{&out, table}).Write([]byte("block")); n != 5 || err != nil || out.String() != "block" {
		t.Errorf("%d, %v, wrote %q", n, err, &out)
	}
	if _, err := (teeWriter{full{}, table}).Write([]byte("block")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v", err)
	}
}

// Ctrl-C is a key in raw mode. A second one exits at once, and the terminal is as it was.
func TestInterruptedTop(t *testing.T) {
	outside, inside := openPTY(t, 120, 24)
	before := termios(t, inside)
	seen := screenOf(outside)
	s := runningTrace(t)
	s.onStop = nil // the trace does not end
	r := startWith(t, s, func(o *Options) {
		o.Terminal, o.Keyboard, o.Streams.Out, o.Width = inside, inside, inside, func() int { return 120 }
	}, "trace", "web", "--top", "-o", filepath.Join(t.TempDir(), "web.ndjson"))
	seen.await(t, "calls by calls/s. Keys: c calls/s, t total, e errors, l median, m longest, n name, q quit")
	seen.await(t, "openat")
	if _, err := outside.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	seen.await(t, "Press Ctrl-C again to exit at once.")
	if _, err := outside.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	r.await(t, report.ExitInterrupted)
	if termios(t, inside) != before {
		t.Error("the terminal is left in raw mode")
	}
	if strings.Contains(seen.String(), "/etc/web.conf") {
		t.Error("events are shown beside the table")
	}
}

// Without a terminal there are plain lines, and no cursor codes.
func TestTopWithoutATerminal(t *testing.T) {
	s := runningCapture(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	r := sonde(t, s, report.ExitOK, "capture", "web", "--top", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	if text := r.out.String() + r.errOut.String(); strings.Contains(text, "\x1b") || strings.Contains(text, "Keys:") || !strings.Contains(text, "Completed") {
		t.Errorf("said\n%q", text)
	}
}
