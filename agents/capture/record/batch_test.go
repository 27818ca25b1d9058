package record

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// randomBatch returns n packets in runs, the sum of sizes up to each packet, and all blocks.
func randomBatch(r *rand.Rand, n int) (b Batch, sizes []uint64, all []byte) {
	var run []byte
	sizes = []uint64{0}
	for i := range n {
		data := make([]byte, r.IntN(2000))
		p := pcapng.Packet{Interface: r.Uint32N(3), Time: 1e18 + r.Uint64N(1e15), Data: data, Length: uint32(len(data) + r.IntN(2)*r.IntN(3000))}
		run = pcapng.AppendPacket(run, &p)
		sizes = append(sizes, uint64(len(all)+len(run)))
		if i == n-1 || r.IntN(3) == 0 {
			b.Append(run)
			all, run = append(all, run...), nil
		}
	}
	b.recount()
	return b, sizes, all
}

// A batch is split before the first packet that has no room, and the counts of both parts are right.
func TestSplitAtLimits(t *testing.T) {
	const packets = 20
	b, sizes, all := randomBatch(rand.New(rand.NewPCG(3, 4)), packets)
	for n := range packets {
		cases := map[string]room{
			"packets":          {uint64(n), math.MaxUint64},
			"bytes":            {math.MaxUint64, sizes[n]},
			"almost one more":  {math.MaxUint64, sizes[n+1] - 1},
			"both":             {uint64(n), sizes[n]},
			"bytes before all": {uint64(n + 1), sizes[n]},
		}
		for name, left := range cases {
			head, rest := b.split(left)
			if !bytes.Equal(all[:sizes[n]], bytes.Join(head.runs, nil)) {
				t.Errorf("%s, %d: the first part differs", name, n)
			}
			if !bytes.Equal(all[sizes[n]:], bytes.Join(rest.runs, nil)) {
				t.Errorf("%s, %d: the rest differs", name, n)
			}
			for part, got := range map[string]Batch{"head": head, "rest": rest} {
				want := got
				want.recount()
				want.runs, got.runs = nil, nil
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(Batch{}, tally{})); diff != "" {
					t.Errorf("%s, %d, %s (-want +got):\n%s", name, n, part, diff)
				}
			}
			if head.packets+rest.packets != b.packets || head.size+rest.size != b.size || captured(&head)+captured(&rest) != captured(&b) {
				t.Errorf("%s, %d: %+v and %+v do not make %+v", name, n, head, rest, b)
			}
		}
	}
	if head, rest := b.split(unlimited); head.packets != packets || rest.packets != 0 {
		t.Errorf("without limits %d packets are in the first part and %d in the rest", head.packets, rest.packets)
	}
}

func captured(b *Batch) (bytes uint64) {
	for _, t := range b.tallies {
		bytes += t.bytes
	}
	return bytes
}

// split finds the whole blocks in the first part of a batch.
func TestKeepWhole(t *testing.T) {
	b, sizes, _ := randomBatch(rand.New(rand.NewPCG(5, 6)), 12)
	for written := range b.size + 1 {
		whole, exact := slices.BinarySearch(sizes, written)
		if !exact {
			whole--
		}
		kept, lost := b.split(room{math.MaxUint64, written})
		if kept.packets != uint64(whole) || kept.size > written || kept.packets+lost.packets != b.packets {
			t.Fatalf("%d bytes have %d whole packets, kept %d in %d bytes", written, whole, kept.packets, kept.size)
		}
	}
}

// A batch may have packets of several interfaces.
func TestBatchCountsInterfaces(t *testing.T) {
	var b Batch
	for i, iface := range []uint32{3, 3, 0, 3, 0} {
		b.Count(iface, 100, uint64(10-i), 60, uint32(60+i))
	}
	want := []tally{
		{iface: 3, packets: 3, bytes: 180, truncated: 2, first: 7, latest: 10},
		{iface: 0, packets: 2, bytes: 120, truncated: 2, first: 6, latest: 8},
	}
	if diff := cmp.Diff(want, b.tallies, cmp.AllowUnexported(tally{})); diff != "" || b.packets != 5 || b.size != 500 {
		t.Errorf("%d packets of %d bytes (-want +got):\n%s", b.packets, b.size, diff)
	}
	if b.Reset(); b.packets != 0 || len(b.tallies) != 0 || b.tallyOf(7).packets != 0 {
		t.Errorf("after Reset: %+v", b)
	}
}
