package packetview

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/traffic"
)

var seed = flag.Uint64("seed", 1, "of the random segments")

// TestRandomSegments compares the analysis of segments that no real connection has.
func TestRandomSegments(t *testing.T) {
	b := randomSegments(rand.New(rand.NewPCG(*seed, 1)), 400)
	compareSegments(t, packets(t, write(t, b), segmentFields...), read(t, b))
	if t.Failed() {
		t.Log("repeat with -args -seed " + strconv.FormatUint(*seed, 10))
	}
}

// randomSegments returns connections in which segments are lost, repeated, reordered and acknowledged at random.
func randomSegments(r *rand.Rand, count int) []byte {
	f := traffic.New()
	iface := f.Interface("eth0", "", 0)
	for i := range count {
		client := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), uint16(1024+i%(count-20))) // some ports are used again
		c := f.Connect(iface, client, netip.MustParseAddrPort("192.0.2.2:7"), false, r.Uint32(), time.Duration(1+r.IntN(5))*time.Millisecond)
		for range r.IntN(2) { // the first SYN was lost
			c.Segment(true, c.Client.Seq, 0, traffic.Flags{SYN: true}, nil)
			f.Wait(time.Second)
		}
		if r.IntN(5) > 0 {
			c.Open()
		}
		for range r.IntN(30) {
			randomSegment(r, f, c)
		}
		if r.IntN(3) == 0 {
			c.Close()
		}
		f.Wait(time.Second)
	}
	return f.Bytes()
}

func randomSegment(r *rand.Rand, f *traffic.File, c *traffic.Connection) {
	f.Wait(time.Duration(r.IntN(6000)) * time.Microsecond)
	fromClient := r.IntN(3) > 0
	from, to := &c.Client, &c.Server
	if !fromClient {
		from, to = to, from
	}
	data := make([]byte, []int{1, 2, 500, 1000}[r.IntN(4)])
	switch r.IntN(12) {
	case 0, 1, 2, 3:
		c.Send(fromClient, data)
	case 4, 5:
		c.Ack(fromClient)
	case 6:
		c.Lose(fromClient, len(data))
	case 7: // something from before
		c.Segment(fromClient, from.Seq-uint32(r.IntN(2000)), to.Seq-uint32(r.IntN(2)*1000), traffic.Flags{ACK: true}, data)
	case 8: // acknowledgements of something earlier
		ack := to.Seq - uint32(r.IntN(2)*500)
		for range r.IntN(5) {
			c.Segment(fromClient, from.Seq, ack, traffic.Flags{ACK: true}, nil)
			f.Wait(50 * time.Microsecond)
		}
		c.Segment(!fromClient, ack, from.Seq, traffic.Flags{ACK: true}, data)
	case 9:
		c.Segment(fromClient, from.Seq-1, to.Seq, traffic.Flags{ACK: true}, data[:r.IntN(2)])
	case 10:
		from.Window = uint16(r.IntN(2) * 60000)
		c.Ack(fromClient)
	case 11:
		switch r.IntN(6) {
		case 0:
			c.Reset(fromClient)
		case 1:
			c.Segment(fromClient, from.Seq, to.Seq, traffic.Flags{FIN: true, ACK: true}, data)
		case 2:
			c.Segment(true, r.Uint32(), 0, traffic.Flags{SYN: true}, nil)
		}
	}
}
