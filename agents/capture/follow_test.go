package capture

import (
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
)

// While someone reads the file, the engine says up to which time all packets are in it. It never says a time before which a packet
// comes later. Nobody hears anything otherwise.
func TestFollowed(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel()
			n := newTestNet(t)
			s := n.senderTo(t, n.target, n.peer, peerIP)
			var followed atomic.Bool
			var horizon atomic.Uint64
			r := start(t, cand.engine(), &Config{
				NetNS: n.target, Interfaces: []string{"eth0"}, Filters: frames.OnlyDiscard(), Followed: followed.Load, Complete: horizon.Store,
			})
			s.send(0, 1)
			await(t, "the packet in the file", func() bool { return readFile(t, r.path).numbers(t, "eth0")[0] == 1 })
			if at := horizon.Load(); at != 0 {
				t.Errorf("horizon %d, and nobody follows", at)
			}
			followed.Store(true)
			for sent := uint32(1); sent < 20; sent++ {
				before := uint64(time.Now().UnixNano())
				s.send(sent, sent+1)
				after := uint64(time.Now().UnixNano())
				await(t, "the time of the packet", func() bool { return horizon.Load() >= after })
				if got := readFile(t, r.path).numbers(t, "eth0")[sent]; got != 1 {
					t.Errorf("packet %d is %d times in the file, whose packets are said to be complete since %d ns after it", sent, got, horizon.Load()-before)
				}
			}
			quiet := horizon.Load()
			time.Sleep(soon)
			await(t, "a later time without packets", func() bool { return horizon.Load() > quiet })
			r.stop()
		})
	}
}

// readAll is a backend that has read all packets up to now.
type readAll struct{ backend.Backend }

func (readAll) ReadTo() uint64 { return uint64(time.Now().UnixNano()) }

// A ring that goes on to its next file while packets wait to be written soon says that they are in the files.
func TestFollowedBeyondAFile(t *testing.T) {
	t.Parallel()
	ring := &record.Rotate{MaxBytes: 1 << 20, Files: 3}
	rec := record.New(&record.Config{SnapLen: 1 << 16, Rotate: ring, MaxBytes: 3 << 20, Dir: t.TempDir(), Base: "web", FileMode: 0o600},
		slog.New(slog.DiscardHandler), record.CreateFile)
	if err := rec.Open(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rec.Close() }()
	desc := pcapng.AppendInterface(nil, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet, SnapLen: 1 << 16})
	if _, err := rec.Add(desc, record.InterfaceAccount{Name: "eth0", LinkType: pcapng.LinkTypeEthernet}); err != nil {
		t.Fatal(err)
	}
	var complete uint64
	s := &session{rec: rec, backend: readAll{}, cfg: Config{Complete: func(at uint64) { complete = at }}}
	write := func(packets int) {
		var b record.Batch
		for range packets {
			at := uint64(time.Now().UnixNano())
			block := pcapng.AppendPacket(nil, &pcapng.Packet{Time: at, Length: 1000, Data: make([]byte, 1000)})
			b.Append(block)
			b.Count(0, uint64(len(block)), at, 1000, 1000)
		}
		rec.Write(&b)
	}
	for round := range 20 {
		write(900)                // most of a file, more than is written at once
		s.serve(time.Millisecond) // notes the time, and begins to write
		write(200)                // more than the file has room for
		now := uint64(time.Now().UnixNano())
		for end := time.Now().Add(10 * time.Second); complete < now; time.Sleep(s.serve(time.Millisecond)) {
			if time.Now().After(end) {
				t.Fatalf("round %d: within 10 s nothing says that the packets are in the files", round)
			}
		}
	}
}
