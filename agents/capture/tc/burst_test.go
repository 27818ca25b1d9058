package tc

import (
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
)

// attachPoints returns the backends that this kernel has.
func attachPoints(t *testing.T) map[string]func(*backend.Config) *Backend {
	t.Helper()
	points := map[string]func(*backend.Config) *Backend{Clsact: NewClsact}
	if (tcx{}).check(-1, nil) == nil {
		points[TCX] = NewTCX
	}
	return points
}

// A burst wakes a quiet reader before a ring is full.
func TestProgramsWakeTheReader(t *testing.T) {
	ns := newNamespace(t)
	for name, newBackend := range attachPoints(t) {
		t.Run(name, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			r := record.New(&record.Config{Dir: t.TempDir(), Base: "web", FileMode: 0o600, SnapLen: 2000}, log, record.CreateFile)
			cfg := &backend.Config{NetNS: int(ns.Fd()), Filters: frames.OnlyDiscard(), RingBytes: 1 << 20, Recorder: r, Log: log, Watch: func(int) error { return nil }}
			b := newBackend(cfg)
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			startOnLoopback(t, b, r)
			defer func() { _ = r.Close() }()
			if wait, err := b.Read(); err != nil || wait == 0 || asked(t, b) {
				t.Fatalf("wait %v, %v, in quiet", wait, err)
			}
			s := sender(t, ns)
			for sent := 0; !asked(t, b); sent++ {
				_, _ = s.Write(make([]byte, 1000)) // there is no receiver
				if ring.Fullest(b.programs.rings) > 0.5 {
					t.Fatalf("the programs did not wake the reader after %d packets", sent)
				}
			}
			if full := ring.Fullest(b.programs.rings); full < 0.1 || full > 0.25 {
				t.Errorf("woken when a ring was full to %v", full)
			}
			await(t, "the packets to be read", func() bool {
				_, err := b.Read()
				return err == nil && ring.Fullest(b.programs.rings) == 0
			})
			if asked(t, b) {
				t.Error("still woken")
			}
		})
	}
}

// startOnLoopback prepares a backend and starts a source for loopback.
func startOnLoopback(t *testing.T, b *Backend, r *record.Recorder) {
	t.Helper()
	lo := links.Link{Index: loopback, Name: "lo", HardwareType: unix.ARPHRD_LOOPBACK, Flags: unix.IFF_LOOPBACK}
	if err := b.Prepare([]links.Link{lo}); err != nil {
		t.Fatal(err)
	}
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	s, err := b.Open(&lo, false)
	if err != nil {
		t.Fatal(err)
	}
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "lo", LinkType: pcapng.LinkTypeEthernet})
	i, err := r.Add(desc, record.InterfaceAccount{Name: "lo", Index: loopback, LinkType: pcapng.LinkTypeEthernet})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(i); err != nil {
		t.Fatal(err)
	}
}

func asked(t *testing.T, b *Backend) bool {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(b.programs.waker.FD()), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}
