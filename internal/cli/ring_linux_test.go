package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// ringStream is what a keeper sends of a ring with one packet in each file, from the file of a number on. The stream lacks the packets of
// earlier files.
func ringStream(pod string, from int, times ...uint64) (stream []byte) {
	lacks := uint64(from - 1)
	for i, at := range times[lacks:] {
		gap := &pcapng.Gap{Packets: lacks, File: captureconfig.RingFile(pod+"-qwer", uint64(from+i))}
		stream = append(append(stream, pcapng.AppendGap(nil, gap)...), packets(at)...)
		lacks = 0
	}
	return stream
}

// runningRing is an API server whose next capture runs and has a ring of files, of which the streams begin with the file of a number.
func runningRing(t *testing.T, from int) *apiServer {
	t.Helper()
	s := runningCapture(t)
	s.rings = map[string][]byte{"u1": ringStream("web-1", from, 1, 3, 5), "u2": ringStream("web-2", 1, 2, 4)}
	return s
}

func ring() *v1alpha1.PacketCapture {
	return &v1alpha1.PacketCapture{Spec: v1alpha1.PacketCaptureSpec{Rotate: &v1alpha1.Rotate{MaxBytes: 1 << 20, Files: 2}}}
}

// A stream of a ring has all packets, also those that are overwritten at its end. The capture is deleted, because its reader has them.
func TestLiveRing(t *testing.T) {
	for name, args := range map[string][]string{"live": {"--live", "--delay", "10ms"}, "to standard output": {"-o", "-"}} {
		t.Run(name, func(t *testing.T) {
			s := runningRing(t, 1)
			r := start(t, s, nil, append([]string{"capture", "web", "--rotate", "1Mi:2"}, args...)...)
			awaitPackets(t, r.out.String, 3)
			s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
			r.await(t, report.ExitOK)
			if got := times(t, []byte(r.out.String())); len(got) != 5 || !slices.Contains(got, 2) {
				t.Errorf("packets %v", got)
			}
			if !strings.Contains(r.errOut.String(), "5 packets were in the stream, overwritten ones included") || len(s.captures) != 0 || s.accesses != 0 {
				t.Errorf("said\n%s\nand kept %d captures", r.errOut, len(s.captures))
			}
		})
	}
}

// A stream from the start that lacks packets, because their file was removed before it was read, is not complete: the capture is kept.
func TestLiveRingIncomplete(t *testing.T) {
	for name, args := range map[string][]string{"live": {"--live"}, "to standard output": {"-o", "-"}} {
		t.Run(name, func(t *testing.T) {
			s := runningRing(t, 3)
			r := start(t, s, nil, append([]string{"capture", "web", "--rotate", "1Mi:2", "--delay", "10ms"}, args...)...)
			awaitPackets(t, r.out.String, 1)
			s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
			r.await(t, report.ExitIncomplete)
			said := r.errOut.String()
			if strings.Count(said, "web-1: 2 of its 3 packets are not in the stream") != 1 || strings.Contains(said, "web-2: ") || !strings.Contains(said, "kubectl sonde download") {
				t.Errorf("said\n%s", said)
			}
			if len(s.captures) != 1 || len(times(t, []byte(r.out.String()))) != 3 {
				t.Errorf("%d captures are left, packets %v", len(s.captures), times(t, []byte(r.out.String())))
			}
		})
	}
}

// The file has what the ring has at the end, beside a stream that has more, or less.
func TestLiveRingAndAFile(t *testing.T) {
	for name, tc := range map[string]struct {
		from int
		want string
	}{
		"all":     {1, "5 packets were in the stream, overwritten ones included"},
		"not all": {3, "Note: 2 of 5 packets were not in the stream; those that were not overwritten are in "},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "web.pcapng")
			s := runningRing(t, tc.from)
			r := start(t, s, nil, "capture", "web", "--rotate", "1Mi:2", "--live", "--delay", "10ms", "-o", path)
			awaitPackets(t, r.out.String, 1)
			s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
			r.await(t, report.ExitOK)
			said := r.out.String() + r.errOut.String()
			if !strings.Contains(said, tc.want) || strings.Contains(said, "not in the stream") != (tc.from > 1) {
				t.Errorf("no %q in\n%s", tc.want, said)
			}
			if got := timesIn(t, path); !slices.Equal(got, []uint64{2, 3, 4, 5}) || len(s.captures) != 0 {
				t.Errorf("the file has packets %v; %d captures are left", got, len(s.captures))
			}
		})
	}
}

// A running ring is followed from its oldest file on. What was overwritten before is counted, and is no error.
func TestFollowRing(t *testing.T) {
	s := runningRing(t, 2)
	s.add(ring(), v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "follow", "web", "--delay", "10ms")
	awaitPackets(t, r.out.String, 2)
	s.later("packetcaptures/web", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	if got := times(t, []byte(r.out.String())); len(got) != 4 {
		t.Errorf("packets %v", got)
	}
	for _, want := range []string{
		"4 packets of 2 Pods", "1 packets are not in the stream, because they were captured before it began\n",
		"To save the packets that the ring still has:\n  kubectl sonde download web -n shop\n",
	} {
		if !strings.Contains(r.errOut.String(), want) {
			t.Errorf("no %q in\n%s", want, r.errOut)
		}
	}
}

// A reader that loses a file while it follows gets the number of its packets.
func TestFollowRingSlowly(t *testing.T) {
	s := runningRing(t, 1)
	s.rings["u1"] = slices.Concat(ringStream("web-1", 1, 1), pcapng.AppendGap(nil, &pcapng.Gap{Packets: 7, File: captureconfig.RingFile("web-1-qwer", 5)}), packets(5))
	s.add(ring(), v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "follow", "web", "--delay", "10ms")
	awaitPackets(t, r.out.String, 2)
	s.later("packetcaptures/web", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitIncomplete)
	if want := "7 packets are not in the stream, because its reader was slow\n"; !strings.Contains(r.errOut.String(), want) {
		t.Errorf("no %q in\n%s", want, r.errOut)
	}
}

// An older Sonde in the cluster sends the one file. The plugin does not take its packets for all, and says so at once. A new capture is
// kept, but stopped.
func TestRingOfAnOlderSonde(t *testing.T) {
	for name, args := range map[string][]string{"follow": {"follow", "web"}, "capture": {"capture", "web", "--name", "web", "--rotate", "1Mi:2", "-o", "-"}} {
		t.Run(name, func(t *testing.T) {
			s := runningRing(t, 1)
			s.rings["u1"] = packets(1, 3)
			if name == "follow" {
				s.add(ring(), v1alpha1.PhaseCapturing)
			}
			r := sonde(t, s, report.ExitError, args...)
			for _, want := range []string{"Pod web-1: follow web-1-qwer-0000000001.pcapng: ", "cannot show a ring of files (rotate) while it grows", "kubectl sonde download"} {
				if !strings.Contains(r.errOut.String(), want) {
					t.Errorf("no %q in\n%s", want, r.errOut)
				}
			}
			if c := s.captures["packetcaptures/web"]; c == nil || c.Common().Stop != (name == "capture") {
				t.Errorf("the capture is %+v", c)
			}
		})
	}
}

// The table of conversations and Wireshark's list of interfaces have rings, too.
func TestTopOfARing(t *testing.T) {
	outside, inside := openPTY(t, 120, 24)
	seen := screenOf(outside)
	s := runningRing(t, 1)
	r := startWith(t, s, func(o *Options) { o.Terminal, o.Keyboard = inside, inside }, "capture", "web", "--rotate", "1Mi:2", "--top", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	seen.await(t, "conversations by packets/s")
	seen.await(t, "180 B  ") // the total of the three packets
	s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
}

func TestExtcapFollowsARing(t *testing.T) {
	s := runningRing(t, 1)
	s.add(ring(), v1alpha1.PhaseCapturing)
	if r := sonde(t, s, report.ExitOK, "extcap", "run", "--extcap-interfaces"); !strings.Contains(r.out.String(), "{value=sonde-pcap-web}") {
		t.Errorf("the interfaces are %s", r.out)
	}
	path, got := fifo(t)
	r := start(t, s, nil, "extcap", "run", "--capture", "--extcap-interface", "sonde-pcap-web", "--fifo", path)
	awaitPackets(t, got.String, 3)
	r.signals <- syscall.SIGTERM
	r.await(t, report.ExitInterrupted)
}
