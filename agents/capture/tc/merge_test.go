package tc

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// mergeTest is a backend with interfaces and a file. Tests write into its rings.
type mergeTest struct {
	*Backend
	cfg        *record.Config
	interfaces []*record.Interface
}

func merging(t *testing.T, rings, size, interfaces int) *mergeTest {
	t.Helper()
	cfg := &record.Config{Dir: t.TempDir(), Base: "web", FileMode: 0o600, SnapLen: snapLen}
	b := &mergeTest{cfg: cfg}
	r := record.New(cfg, slog.New(slog.DiscardHandler), record.CreateFile)
	if err := r.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	for i := range interfaces {
		desc := pcapng.AppendInterface(nil, &pcapng.Interface{Name: string(rune('a' + i)), LinkType: pcapng.LinkTypeEthernet})
		iface, err := r.Add(desc, record.InterfaceAccount{Name: string(rune('a' + i)), Index: i + 1})
		if err != nil {
			t.Fatal(err)
		}
		b.interfaces = append(b.interfaces, iface)
	}
	b.Backend = &Backend{cfg: &backend.Config{Recorder: r}, programs: &programs{size: size}}
	for range rings {
		b.programs.rings = append(b.programs.rings, ring.InMemory(size, 4096, uint64(size)-64))
	}
	return b
}

func blockOf(iface uint32, time uint64, size int) []byte {
	return pcapng.AppendPacket(nil, &pcapng.Packet{Interface: iface, Time: time, Data: make([]byte, size), Length: uint32(size) + 1, Flags: pcapng.Inbound})
}

// times returns the times of the packets in the file, in the file's order.
func (b *mergeTest) times(t *testing.T) (times []uint64) {
	t.Helper()
	if err := b.Backend.cfg.Recorder.Finish(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(b.cfg.Dir, "web.pcapng"))
	if err != nil {
		t.Fatal(err)
	}
	r := pcapng.NewReader(bytes.NewReader(content))
	for {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return times
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := block.(*pcapng.Packet); ok {
			times = append(times, p.Time)
		}
	}
}

// Blocks of several CPUs are in the file in time order, each once, while packets arrive and at the end.
func TestMergeIsInOrder(t *testing.T) {
	const rings, packets = 3, 20_000
	b := merging(t, rings, 64<<10, 4)
	random := rand.New(rand.NewPCG(7, 8))
	at, sent, until := uint64(1e18), 0, uint64(0)
	for sent < packets {
		for range random.IntN(200) {
			at += random.Uint64N(1000)
			ring := random.IntN(rings)
			if b.programs.rings[ring].Put(blockOf(random.Uint32N(4), at, random.IntN(400)), 0) {
				sent++
			}
		}
		if until = at - random.Uint64N(5000); random.IntN(10) == 0 {
			until = at
		}
		if err := b.merge(until); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.merge(math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	times := b.times(t)
	if len(times) != sent || !slices.IsSorted(times) {
		t.Errorf("%d packets of %d, in order: %v", len(times), sent, slices.IsSorted(times))
	}
	var written, truncated uint64
	for _, iface := range b.interfaces {
		written += iface.Account.Written
		truncated += iface.Account.Truncated
	}
	if written != uint64(sent) || truncated != written {
		t.Errorf("the account has %d packets, %d of them truncated", written, truncated)
	}
}

// A block that is not yet due stays. After the clock was set back, older blocks do not wait until their time.
func TestDue(t *testing.T) {
	const now = 1e18
	cases := map[string]struct{ at, want uint64 }{
		"long ago":              {now - 1e9, now - 1e9},
		"now":                   {now, now},
		"just now":              {now + 1, 0},
		"while one is held up":  {now + clockStep, 0},
		"by the clock of later": {now + clockStep + 1, now},
		"at the beginning":      {0, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := due(tc.at, now); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

// The limit of packets ends the file exactly, and later packets in the rings are counted.
func TestMergeBeyondALimit(t *testing.T) {
	b := merging(t, 2, 64<<10, 1)
	b.cfg.MaxPackets = 5
	for i := range 12 {
		b.programs.rings[i%2].Put(blockOf(0, uint64(100+i), 60), 0)
	}
	if err := b.merge(math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	a := b.interfaces[0].Account
	if a.Written != 5 || a.BeyondLimit != 7 || !b.Backend.cfg.Recorder.Ended() {
		t.Errorf("%+v", a)
	}
	if got, want := b.times(t), []uint64{100, 101, 102, 103, 104}; !slices.Equal(got, want) {
		t.Errorf("packets of %v", got)
	}
}

// An incomplete block ends the capture, and the blocks before it are in the file.
func TestMergeOfDamagedRings(t *testing.T) {
	cases := map[string]func(block []byte){
		"no packet block":      func(b []byte) { b[0] = 5 },
		"too short":            func(b []byte) { b[4], b[5] = 16, 0 },
		"too long":             func(b []byte) { b[6] = 1 },
		"unknown interface":    func(b []byte) { b[8] = 1 },
		"all zeros":            func(b []byte) { clear(b) },
		"longer than the ring": func(b []byte) { b[7] = 0xff },
		"negative interface":   func(b []byte) { b[11] = 0xff },
		"another byte order":   func(b []byte) { slices.Reverse(b[:4]) },
	}
	for name, damage := range cases {
		t.Run(name, func(t *testing.T) {
			b := merging(t, 1, 32<<10, 1)
			b.programs.rings[0].Put(blockOf(0, 1, 60), 0)
			b.programs.rings[0].Put(blockOf(0, 2, 60), 0)
			bad := blockOf(0, 3, 60)
			damage(bad)
			b.programs.rings[0].Put(bad, 0)
			if err := b.merge(math.MaxUint64); !errors.Is(err, errIncomplete) {
				t.Errorf("error %v", err)
			}
			if got := b.times(t); !slices.Equal(got, []uint64{1, 2}) {
				t.Errorf("packets of %v", got)
			}
		})
	}
}
