package cli

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// runningCapture is an API server whose next capture runs, and has packets in the file of one Pod.
func runningCapture(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t)
	s.files["u1/web-1-qwer.pcapng"] = packets(1, 3)
	s.onCreate = s.twoPods(v1alpha1.PhaseCapturing)
	s.onStop = s.twoPods(v1alpha1.PhaseCompleted)
	return s
}

// awaitPackets waits for so many packets in a stream that goes on.
func awaitPackets(t *testing.T, get func() string, n int) {
	t.Helper()
	const header = "\x06\x00\x00\x00"
	for deadline := time.Now().Add(20 * time.Second); strings.Count(get(), header) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d packets come while the capture runs", strings.Count(get(), header), n)
		}
	}
}

// Packets are on standard output while the capture runs. It is deleted afterwards, because the reader has them all.
func TestCaptureLive(t *testing.T) {
	for name, args := range map[string][]string{"live": {"--live", "--delay", "10ms"}, "to standard output": {"-o", "-"}} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			s := runningCapture(t)
			r := start(t, s, nil, append([]string{"capture", "web"}, args...)...)
			awaitPackets(t, r.out.String, 2)
			r.out.await(t, "shop/web-1") // the name of its address
			s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
			r.await(t, report.ExitOK)
			if got := times(t, []byte(r.out.String())); !slices.Contains(got, 2) || len(got) != 5 {
				t.Errorf("packets %v", got)
			}
			if !strings.Contains(r.errOut.String(), "Written to the standard output") || len(s.captures) != 0 || s.accesses != 0 {
				t.Errorf("said\n%s\nand kept %d captures", r.errOut, len(s.captures))
			}
			if files, _ := os.ReadDir("."); len(files) > 0 {
				t.Errorf("%v is saved", files)
			}
		})
	}
}

// An interrupt stops the capture. The stream goes on to its end, and the file that -o names has all packets, too.
func TestInterruptStopsALiveCapture(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.pcapng")
	s := runningCapture(t)
	r := start(t, s, nil, "capture", "web", "--live", "--delay", "10ms", "-o", path)
	awaitPackets(t, r.out.String, 2)
	r.signals <- os.Interrupt
	r.await(t, report.ExitOK)
	if got := times(t, []byte(r.out.String())); len(got) != 5 {
		t.Errorf("packets %v in the stream", got)
	}
	if got := timesIn(t, path); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("packets %v in the file", got)
	}
	if len(s.captures) != 0 || !strings.Contains(r.errOut.String(), "Saved to "+path) {
		t.Errorf("%d captures are left; said\n%s", len(s.captures), r.errOut)
	}
}

// A pipe without a reader stops the capture.
func TestLiveWithoutAReader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.pcapng")
	tests := map[string]struct {
		args     []string
		code     int
		captures int
		want     string
	}{
		"the reader has what it wants": {[]string{"--live"}, report.ExitOK, 0, "Stopping"},
		"all packets are wanted":       {[]string{"-o", "-"}, report.ExitError, 1, "kubectl sonde download"},
		"a file is wanted":             {[]string{"--live", "-o", path}, report.ExitOK, 0, "Saved to"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			_ = in.Close()
			s := runningCapture(t)
			r := startTo(t, s, out, append([]string{"capture", "web"}, tc.args...)...)
			r.await(t, tc.code)
			if !strings.Contains(r.errOut.String(), tc.want) || len(s.captures) != tc.captures {
				t.Errorf("%d captures are left; said\n%s", len(s.captures), r.errOut)
			}
		})
	}
}

// TestSlowReaderThatEnds: the packets that a reader missed before it ended are in the files alone, so the capture must not be deleted.
func TestSlowReaderThatEnds(t *testing.T) {
	pods := []v1alpha1.PodResult{{
		Name: "web-1", UID: "u1", Phase: v1alpha1.PhaseCompleted, Packets: 7, Files: []v1alpha1.ResultFile{{Name: "web-1.pcapng", Bytes: 9}},
	}}
	for name, tc := range map[string]struct {
		leftOut int64
		hung    bool
		want    string
	}{
		"it kept up": {},
		"slow":       {leftOut: 4, want: "4 of its 7 packets are not in the stream"},
		"hung":       {hung: true, want: errHung.Error()},
		"both":       {leftOut: 4, hung: true, want: "4 of its 7 packets are not in the stream"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &packetStream{err: follow.ErrReaderEnded}
			s.result = follow.Result{LeftOut: map[string]int64{"u1": tc.leftOut}, Read: map[string]int64{"u1": 1}, Hung: tc.hung}
			saved, err := s.saved(pods, false)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if saved.Files[0].Err != nil {
				got = saved.Files[0].Err.Error()
			}
			if got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// full is an output that fails as a full disk does.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A stream that lacks packets says so, and the capture is kept with them.
func TestLiveIncomplete(t *testing.T) {
	more := func(s *apiServer) func(v1alpha1.Capture) {
		return func(c v1alpha1.Capture) {
			s.twoPods(v1alpha1.PhaseCompleted)(c)
			c.CaptureStatus().Pods[0].Packets += 4
		}
	}
	s := runningCapture(t)
	s.onCreate = more(s)
	r := sonde(t, s, report.ExitIncomplete, "capture", "web", "--live")
	for _, want := range []string{"web-1: 4 of its 7 packets are not in the stream", "kubectl sonde download"} {
		if !strings.Contains(r.errOut.String(), want) {
			t.Errorf("no %q in\n%s", want, r.errOut)
		}
	}
	if len(s.captures) != 1 {
		t.Error("the capture is deleted")
	}

	s = runningCapture(t)
	s.onCreate = more(s)
	r = sonde(t, s, report.ExitOK, "capture", "web", "--live", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	if want := "Note: 4 of 9 packets were not in the stream; they are in "; !strings.Contains(r.out.String()+r.errOut.String(), want) {
		t.Errorf("no %q in\n%s%s", want, r.out, r.errOut)
	}

	s = runningCapture(t)
	r = startTo(t, s, full{}, "capture", "web", "--live")
	r.await(t, report.ExitError)
	if !strings.Contains(r.errOut.String(), "no space left on device") || len(s.captures) != 1 {
		t.Errorf("%d captures are left; said\n%s", len(s.captures), r.errOut)
	}
}

func TestLiveRefuses(t *testing.T) {
	terminal := func(o *Options) { o.Width = func() int { return 80 } }
	tests := map[string]struct {
		change func(*Options)
		args   []string
		want   string
	}{
		"separate files":      {nil, []string{"--live", "--keep-separate", "-o", "dir"}, "omit one of the two"},
		"two readers":         {nil, []string{"--wireshark", "-o", "-"}, "choose one of them"},
		"a terminal":          {terminal, []string{"--live"}, "standard output is a terminal"},
		"a long delay":        {nil, []string{"--live", "--delay", "2m"}, "between 0s and 1m"},
		"JSON beside packets": {nil, []string{"--live", "--json", "-o", "x"}, "omit one of the two"},
		"no Wireshark":        {nil, []string{"--wireshark"}, "write --live instead of --wireshark and pipe the output into it, like | tshark -l -r -"},
	}
	t.Setenv("PATH", "")
	t.Setenv("WIRESHARK", "")
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			change := tc.change
			if change == nil {
				change = func(*Options) {}
			}
			r := startWith(t, s, change, append([]string{"capture", "web"}, tc.args...)...)
			r.await(t, report.ExitError)
			if !strings.Contains(r.errOut.String(), tc.want) || len(s.created) > 0 {
				t.Errorf("created %d captures, said\n%s", len(s.created), r.errOut)
			}
		})
	}
}

// fakeWireshark is a program that writes its input to a file until that has so many bytes, or to its end.
func fakeWireshark(t *testing.T, command string) (got string) {
	t.Helper()
	dir := t.TempDir()
	got = filepath.Join(dir, "got")
	program := filepath.Join(dir, "wireshark")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"+command+" > "+got+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WIRESHARK", program)
	return got
}

func readFile(path string) func() string {
	return func() string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
}

func TestCaptureInWireshark(t *testing.T) {
	got := fakeWireshark(t, "cat")
	s := runningCapture(t)
	r := start(t, s, nil, "capture", "web", "--wireshark", "--delay", "10ms")
	awaitPackets(t, readFile(got), 2)
	s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	awaitPackets(t, readFile(got), 5)
	if len(s.captures) != 0 || r.out.String() != "" {
		t.Errorf("%d captures are left; standard output has %q", len(s.captures), r.out)
	}
}

// Closing Wireshark stops a capture, even if no packet comes any more, but not the capture of the command follow.
func TestWiresharkCloses(t *testing.T) {
	fakeWireshark(t, "head -c 200")
	s := runningCapture(t)
	r := start(t, s, nil, "capture", "web", "--wireshark", "--delay", "10ms")
	r.await(t, report.ExitOK)
	if len(s.captures) != 0 {
		t.Error("the capture is left")
	}

	s = runningCapture(t)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	r = start(t, s, nil, "follow", "web", "--wireshark", "--delay", "10ms")
	r.await(t, report.ExitOK)
	if c := s.captures["packetcaptures/web"]; c == nil || c.Common().Stop {
		t.Error("the capture is stopped")
	}
}

func TestFollow(t *testing.T) {
	s := runningCapture(t)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "follow", "web", "--delay", "10ms")
	awaitPackets(t, r.out.String, 2)
	s.later("packetcaptures/web", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	if got := times(t, []byte(r.out.String())); len(got) != 5 || !strings.Contains(r.errOut.String(), "5 packets of 2 Pods") {
		t.Errorf("packets %v, said\n%s", got, r.errOut)
	}

	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	r = startTo(t, s, full{}, "follow", "web")
	r.await(t, report.ExitError)
	if !strings.Contains(r.errOut.String(), "no space left on device") {
		t.Errorf("said\n%s", r.errOut)
	}
	in, out := io.Pipe()
	_ = in.Close()
	r = startTo(t, s, out, "follow", "web")
	r.await(t, report.ExitOK)
}

// A stream that ended early, as when its agent was taken for dead, seems whole. What it lacks is counted nevertheless.
func TestFollowEndedEarly(t *testing.T) {
	s := runningCapture(t)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "follow", "web", "--delay", "10ms")
	awaitPackets(t, r.out.String, 2)
	s.later("packetcaptures/web", func(c v1alpha1.Capture) {
		s.twoPods(v1alpha1.PhaseCompleted)(c)
		status := c.CaptureStatus()
		status.Pods[0].Packets += 4
		// Another Pod's agent was gone before its stream began.
		status.Pods = append(status.Pods, v1alpha1.PodResult{UID: "uid-late", Name: "web-late", Phase: v1alpha1.PhaseIncomplete, Packets: 3})
	})
	r.await(t, report.ExitIncomplete)
	for _, want := range []string{
		"7 packets are not in the stream, because a Pod's stream ended before the capture did, or did not begin\n", "To save all packets:\n  kubectl sonde download web -n shop\n",
	} {
		if !strings.Contains(r.errOut.String(), want) {
			t.Errorf("no %q in\n%s", want, r.errOut)
		}
	}
}

// A Pod that had ended before, and whose file has expired, is left out. If it ended meanwhile, its packets are missing.
func TestFollowLeavesOutExpiredFiles(t *testing.T) {
	for name, tc := range map[string]struct {
		before v1alpha1.Phase
		code   int
		want   string
	}{
		"it had ended":      {v1alpha1.PhaseCompleted, report.ExitOK, "0 packets of 0 Pods"},
		"it ends meanwhile": {v1alpha1.PhaseCapturing, report.ExitIncomplete, "none of their packets are in the stream: 1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := runningCapture(t)
			s.expired = true
			c := s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
			c.CaptureStatus().Pods[0].Phase = tc.before
			r := start(t, s, nil, "follow", "web", "--delay", "10ms")
			for began := time.Now(); s.streamsOf("u1") == 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > 20*time.Second {
					t.Fatal("the file is not asked for")
				}
			}
			s.later("packetcaptures/web", func(c v1alpha1.Capture) {
				s.twoPods(v1alpha1.PhaseCompleted)(c)
				c.CaptureStatus().Pods = c.CaptureStatus().Pods[:1]
			})
			r.await(t, tc.code)
			if !strings.Contains(r.errOut.String(), tc.want) {
				t.Errorf("no %q in\n%s", tc.want, r.errOut)
			}
		})
	}
}

// What cannot be followed is refused with the next step.
func TestFollowRefuses(t *testing.T) {
	ring := &v1alpha1.PacketCapture{Spec: v1alpha1.PacketCaptureSpec{Rotate: &v1alpha1.Rotate{MaxBytes: 1 << 20, Files: 2}}}
	for name, tc := range map[string]struct {
		c     v1alpha1.Capture
		phase v1alpha1.Phase
		arg   string
		want  string
	}{
		"a Trace":           {&v1alpha1.Trace{}, v1alpha1.PhaseCapturing, "trace/web", "when it has ended:\n  kubectl sonde download trace/web -n shop\n"},
		"a ring that ended": {ring, v1alpha1.PhaseCompleted, "web", "To save its packets:\n  kubectl sonde download web -n shop\n"},
		"one that ended":    {&v1alpha1.PacketCapture{}, v1alpha1.PhaseCompleted, "web", "To save its packets:\n  kubectl sonde download web -n shop\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, kind.Trace)
			s.add(tc.c, tc.phase)
			r := sonde(t, s, report.ExitError, "follow", tc.arg)
			if !strings.Contains(r.errOut.String(), tc.want) || r.out.String() != "" || s.accesses != 0 {
				t.Errorf("%d ResultAccesses, said\n%s", s.accesses, r.errOut)
			}
		})
	}
}

// A Pod that has no place for its stream at first lacks packets afterwards: follow says that it waits, counts them, and exits with 3.
func TestFollowWaitsForAPlace(t *testing.T) {
	s := newAPIServer(t)
	s.busy = 1
	s.files["u1/web-1-qwer.pcapng"] = pcapng.AppendGap(packets(), &pcapng.Gap{Bytes: 1000, Packets: 6})
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "follow", "web", "--delay", "10ms")
	r.errOut.await(t, "Waiting for packets: this user has 16 streams open")
	s.later("packetcaptures/web", func(c v1alpha1.Capture) { c.CaptureStatus().Phase = v1alpha1.PhaseCompleted })
	r.await(t, report.ExitIncomplete)
	for _, want := range []string{
		"6 packets are not in the stream, because their Pods had to wait for a place or a connection\n", "To save all packets:\n  kubectl sonde download web -n shop\n",
	} {
		if !strings.Contains(r.errOut.String(), want) {
			t.Errorf("no %q in\n%s", want, r.errOut)
		}
	}
}
