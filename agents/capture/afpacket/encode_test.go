package afpacket

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// packetIn is a packet as the kernel puts it into a ring.
type packetIn struct {
	data    []byte
	length  uint32 // on the wire
	time    uint64
	pktType uint8
	vlan    bool
	tci     uint16
	tpid    uint16 // zero if unknown
}

// fillBlock lays packets out as tpacket_rcv does for SOCK_RAW on Ethernet, and fails for those that do not fit.
func fillBlock(size int, packets []packetIn) (block []byte, fitted int) {
	const macOff = 82
	// Aligned as mapped memory is.
	words := make([]uint64, size/8)
	for i := range words {
		words[i] = 0xeeee_eeee_eeee_eeee
	}
	block = unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	h := blockHeader(block)
	*h = unix.TpacketHdrV1{Block_status: unix.TP_STATUS_USER, Offset_to_first_pkt: blockHeaderLen}
	off := int(blockHeaderLen)
	var last *unix.Tpacket3Hdr
	for _, p := range packets {
		n := (macOff + len(p.data) + 7) &^ 7
		if off+n > size {
			break
		}
		fh := (*unix.Tpacket3Hdr)(unsafe.Pointer(&block[off]))
		*fh = unix.Tpacket3Hdr{
			Next_offset: uint32(n), Sec: uint32(p.time / 1e9), Nsec: uint32(p.time % 1e9),
			Snaplen: uint32(len(p.data)), Len: p.length, Mac: macOff, Net: macOff + 14,
		}
		if p.vlan {
			fh.Status |= unix.TP_STATUS_VLAN_VALID
			fh.Hv1.Vlan_tci = uint32(p.tci)
			if p.tpid != 0 {
				fh.Status |= unix.TP_STATUS_VLAN_TPID_VALID
				fh.Hv1.Vlan_tpid = p.tpid
			}
		}
		sa := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&block[off+int(frameHdrLen)]))
		*sa = unix.RawSockaddrLinklayer{Pkttype: p.pktType}
		copy(block[off+macOff:], p.data)
		off += n
		last = fh
		fitted++
	}
	if last != nil {
		last.Next_offset = 0
	}
	h.Num_pkts, h.Blk_len = uint32(fitted), uint32(off)
	return block, fitted
}

// expect encodes packets by copying them.
func expect(packets []packetIn, iface, snap uint32) []byte {
	var b []byte
	for _, p := range packets {
		data, length := p.data, p.length
		if p.vlan && len(data) >= 12 {
			tpid := p.tpid
			if tpid == 0 {
				tpid = unix.ETH_P_8021Q
			}
			tagged := append([]byte{}, data[:12]...)
			tagged = binary.BigEndian.AppendUint16(tagged, tpid)
			tagged = binary.BigEndian.AppendUint16(tagged, p.tci)
			data, length = append(tagged, data[12:]...), length+4
		}
		data = data[:min(len(data), int(snap))]
		f := frame{pktType: p.pktType}
		at := len(b)
		b = append(b, make([]byte, pcapng.PacketLen(len(data)))...)
		pcapng.PutPacketHeader(b[at:], iface, p.time, uint32(len(data)), length)
		copy(b[at+pcapng.PacketHeaderLen:], data)
		pcapng.PutPacketTrailer(b[at+pcapng.PacketHeaderLen+len(data):], uint32(len(data)), f.flags())
	}
	return b
}

func randomPackets(r *rand.Rand, n int) []packetIn {
	out := make([]packetIn, n)
	for i := range out {
		size := r.IntN(200)
		switch r.IntN(4) {
		case 0:
			size = slideLimit - 4 + r.IntN(8)
		case 1:
			size = slideLimit + r.IntN(2000)
		case 2:
			if r.IntN(20) == 0 {
				size = 65550
			}
		}
		p := packetIn{data: make([]byte, size), time: 1e18 + r.Uint64N(1e15), pktType: uint8(r.IntN(6))}
		for k := range p.data {
			p.data[k] = byte(r.Uint32())
		}
		p.length = uint32(size) + uint32(r.IntN(2)*r.IntN(3000))
		if r.IntN(3) == 0 {
			p.vlan, p.tci = true, uint16(r.Uint32())
			p.tpid = []uint16{0, 0x8100, 0x88a8}[r.IntN(3)]
		}
		out[i] = p
	}
	return out
}

// Encoding in place gives the same bytes as copying, for mixed packets, and for blocks that are full to the last byte.
func TestEncodeInPlaceIsTheSameAsCopying(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		packets := randomPackets(r, 1+r.IntN(120))
		size := minBlock
		if round%2 == 0 { // make the block just as large as its packets
			_, n := fillBlock(minBlock, packets)
			packets = packets[:n]
			full, _ := fillBlock(minBlock, packets)
			size = int(blockHeader(full).Blk_len)
		}
		block, n := fillBlock(size, packets)
		snap := uint32([]int{262144, 96, 700}[r.IntN(3)])
		e := encoder{iface: 5, snapLen: snap, tags: true}
		var out record.Batch
		lost := e.encode(block, &out)
		want := expect(packets[:n], 5, snap)
		if got := bytes.Join(out.Runs(), nil); !bytes.Equal(want, got) {
			t.Fatalf("round %d: %d packets in %d bytes differ (want %d bytes, got %d)", round, n, size, len(want), len(got))
		}
		if out.Size() != uint64(len(want)) || out.Packets() != uint64(n) || lost != 0 {
			t.Fatalf("round %d: %d packets, %d bytes; counted %+v", round, n, len(want), out)
		}
	}
}

func TestBatchCounts(t *testing.T) {
	packets := []packetIn{
		{data: make([]byte, 60), length: 60, time: 7},
		{data: make([]byte, 100), length: 200, time: 5},
		{data: make([]byte, 900), length: 1000, time: 6},
	}
	block, _ := fillBlock(minBlock, packets)
	var out record.Batch
	(&encoder{snapLen: 1000, tags: true}).encode(block, &out)
	var want record.Batch
	for _, run := range out.Runs() {
		want.Append(run)
	}
	want.Count(0, uint64(pcapng.PacketLen(60)), 7, 60, 60)
	want.Count(0, uint64(pcapng.PacketLen(100)), 5, 100, 200)
	want.Count(0, uint64(pcapng.PacketLen(900)), 6, 900, 1000)
	all := cmp.Exporter(func(reflect.Type) bool { return true })
	if diff := cmp.Diff(want, out, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzEncode: the kernel writes the ring, but a wrong offset must not crash the probe, nor lead to an account
// that does not add up.
func FuzzEncode(f *testing.F) {
	good, _ := fillBlock(512, []packetIn{{data: make([]byte, 60)}, {data: make([]byte, 65), vlan: true}, {data: make([]byte, 3)}})
	f.Add(good, uint32(96))
	f.Fuzz(func(t *testing.T, b []byte, snap uint32) {
		if len(b) < int(blockHeaderLen) {
			return
		}
		words := make([]uint64, len(b)/8+1)
		block := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(b))
		copy(block, b)
		h := blockHeader(block)
		h.Num_pkts %= 1000
		h.Offset_to_first_pkt &^= 7
		n := uint64(h.Num_pkts)
		firstTime(block)
		var out record.Batch
		lost := (&encoder{snapLen: snap % 262144, tags: true}).encode(block, &out)
		if out.Packets()+lost != n {
			t.Errorf("%d packets and %d lost, want %d in all", out.Packets(), lost, n)
		}
		size := 0
		for _, r := range out.Runs() {
			size += len(r)
		}
		if uint64(size) != out.Size() {
			t.Errorf("runs of %d bytes, counted %d", size, out.Size())
		}
	})
}
