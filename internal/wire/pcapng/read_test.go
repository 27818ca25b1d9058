package pcapng

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var ignoreClock = cmp.Options{cmpopts.IgnoreUnexported(Interface{}), cmpopts.EquateComparable(netip.Addr{})}

// sample is one of every block, and the stream of them.
func sample() (blocks []Block, stream []byte) {
	s := &Section{Hardware: "x86_64", OS: "Linux 6.18", Application: "sonde", Comments: []string{"who", "what"}}
	n := &Names{Records: []Name{{netip.MustParseAddr("10.0.0.1"), "shop/web-1"}, {netip.MustParseAddr("fd00::1"), "web.shop.svc"}}, Comments: []string{"at 12:00"}}
	i := &Interface{Name: "eth0", Description: "shop/web-1", Filter: "udp port 9", LinkType: LinkTypeEthernet, SnapLen: 262144}
	lo := &Interface{Name: "tun0", LinkType: LinkTypeRaw, Comments: []string{"late"}}
	p := &Packet{Time: 1700000000_123456789, Data: []byte("abcde"), Length: 1500, Flags: Inbound | Broadcast}
	q := &Packet{Interface: 1, Time: 1700000000_123456790, Data: []byte("abcd"), Length: 4, Comments: []string{"odd"}, Process: &Process{PID: 7, Comm: "nginx", Container: "web"}}
	st := &Statistics{Interface: 1, Time: 9, Start: 7, End: 8, Received: new(uint64(10)), IfDrop: new(uint64(1)), FilterAccept: new(uint64(9)), OSDrop: new(uint64(0)), Delivered: new(uint64(8)), Comments: []string{"end"}}
	stream = AppendSection(stream, s)
	stream = AppendNames(stream, n)
	stream = AppendInterface(stream, i)
	stream = AppendPacket(stream, p)
	stream = AppendInterface(stream, lo)
	stream = AppendPacket(stream, q)
	stream = AppendStatistics(stream, st)
	return []Block{s, n, i, p, lo, q, st}, stream
}

// readAll reads a stream to its end and copies the blocks, because the Reader reuses its memory.
func readAll(r io.Reader) ([]Block, error) {
	rd := NewReader(r)
	var blocks []Block
	for {
		b, err := rd.Next()
		if err != nil {
			return blocks, err
		}
		if p, ok := b.(*Packet); ok {
			c := *p
			c.Data = bytes.Clone(p.Data)
			b = &c
		}
		blocks = append(blocks, b)
	}
}

func TestReadBack(t *testing.T) {
	want, stream := sample()
	readers := map[string]io.Reader{
		"at once":      bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
	}
	for name, r := range readers {
		t.Run(name, func(t *testing.T) {
			got, err := readAll(r)
			if !errors.Is(err, io.EOF) {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(want, got, ignoreClock); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A file cut anywhere gives its complete blocks and the offset of the next one.
func TestTruncatedAnywhere(t *testing.T) {
	_, stream := sample()
	ends := map[int]bool{0: true}
	for off := 0; off < len(stream); {
		off += int(binary.LittleEndian.Uint32(stream[off+4:]))
		ends[off] = true
	}
	whole := 0
	for n := range len(stream) + 1 {
		_, err := readAll(bytes.NewReader(stream[:n]))
		if ends[n] {
			whole = n
			if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("cut at %d, between two blocks: %v", n, err)
			}
			continue
		}
		var be *BlockError
		if !errors.Is(err, ErrTruncated) || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &be) {
			t.Errorf("cut at %d: %v", n, err)
		} else if be.Offset != int64(whole) {
			t.Errorf("cut at %d: last complete block ends at %d, reported %d", n, whole, be.Offset)
		}
	}
}

func TestBigEndianAndOtherClocks(t *testing.T) {
	be := binary.BigEndian
	block := func(typ uint32, body []byte) []byte {
		b := be.AppendUint32(nil, typ)
		b = be.AppendUint32(b, uint32(len(body)+12))
		b = append(b, body...)
		return be.AppendUint32(b, uint32(len(body)+12))
	}
	iface := func(options ...byte) []byte {
		return block(typeInterface, append([]byte{0, 1, 0, 0, 0, 0, 0, 96}, options...))
	}
	stream := block(typeSection, []byte{0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 2, 255, 255, 255, 255, 255, 255, 255, 255})
	stream = append(stream, iface()...)                                                            // microseconds
	stream = append(stream, iface(0, 9, 0, 1, 0x8a, 0, 0, 0)...)                                   // 1/1024 s
	stream = append(stream, iface(0, 9, 0, 1, 0, 0, 0, 0, 0, 14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5)...) // s, 5 s ahead
	stream = append(stream, iface(0, 9, 0, 1, 12, 0, 0, 0, 0, 0, 0, 0)...)                         // picoseconds
	stream = append(stream, block(0x0bad, []byte("skip"))...)                                      // not ours
	stream = append(stream, block(typePacket, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0})...)
	stream = append(stream, block(typePacket, []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0})...)
	stream = append(stream, block(typePacket, []byte{0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0})...)
	stream = append(stream, block(typePacket, []byte{0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 7, 0xd0, 0, 0, 0, 0, 0, 0, 0, 0})...)
	got, err := readAll(bytes.NewReader(stream))
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	var times []uint64
	for _, b := range got {
		if p, ok := b.(*Packet); ok {
			times = append(times, p.Time)
		}
	}
	if diff := cmp.Diff([]uint64{2_000_000, 1_500_000_000, 8_000_000_000, 2}, times); diff != "" {
		t.Errorf("times in ns (-want +got):\n%s", diff)
	}
}

func TestDamagedStreamsAreRefused(t *testing.T) {
	_, good := sample()
	section := AppendSection(nil, &Section{})
	iface := AppendInterface(bytes.Clone(section), &Interface{})
	change := func(b []byte, at int, v ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], v)
		return b
	}
	cases := map[string][]byte{
		"classic pcap":             {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0},
		"text":                     []byte("#!/bin/sh\necho no capture\n"),
		"byte order magic":         change(good, 8, 1, 2, 3, 4),
		"major version":            change(good, 12, 2),
		"length too small":         change(good, 4, 8),
		"length no multiple of 4":  change(good, 4, 29),
		"length of 4 GiB":          change(good, 4, 0xfc, 0xff, 0xff, 0xff),
		"lengths differ":           change(section, len(section)-4, 0x20),
		"unknown interface":        AppendPacket(bytes.Clone(section), &Packet{}),
		"statistics of no one":     AppendStatistics(bytes.Clone(iface), &Statistics{Interface: 1}),
		"packet beyond its block":  change(AppendPacket(bytes.Clone(iface), &Packet{}), len(iface)+20, 1),
		"option beyond its block":  change(good, 26, 0xff, 0xff),
		"time resolution 10^-20":   change(iface, len(section)+20, 20),
		"time resolution 2^-64":    change(iface, len(section)+20, 0xc0),
		"time resolution, 0 bytes": change(iface, len(section)+18, 0),
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := readAll(bytes.NewReader(b)); !errors.Is(err, ErrFormat) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestErrorsOfTheSourceAreKept(t *testing.T) {
	_, stream := sample()
	broken := io.MultiReader(bytes.NewReader(stream[:50]), iotest.ErrReader(io.ErrClosedPipe))
	if _, err := readAll(broken); !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrTruncated) {
		t.Errorf("error %v", err)
	}
}

// FuzzReader: for any input, reading ends, needs bounded memory and returns only bytes of the input.
func FuzzReader(f *testing.F) {
	_, stream := sample()
	f.Add(stream)
	f.Add(stream[:len(stream)-5])
	f.Add([]byte{0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0x1a, 0x2b, 0x3c, 0x4d})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b))
		for {
			before := r.Offset()
			block, err := r.Next()
			if err != nil {
				return
			}
			if r.Offset() <= before || r.Offset() > int64(len(b)) {
				t.Fatalf("offset %d after %d, of %d bytes", r.Offset(), before, len(b))
			}
			if p, ok := block.(*Packet); ok && (len(p.Data) > len(b) || int(p.Interface) >= len(r.Interfaces())) {
				t.Fatalf("packet of %d bytes on interface %d", len(p.Data), p.Interface)
			}
		}
	})
}

// Parser reads blocks one by one as Reader reads the stream.
func FuzzParser(f *testing.F) {
	_, stream := sample()
	f.Add(stream)
	f.Add(append(slices.Clone(stream), 1, 2, 3, 4, 12, 0, 0, 0, 12, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Parser
		r := NewReader(bytes.NewReader(b))
		for len(b) > 0 {
			n, block, err := SplitBlocks(b, true)
			if err != nil || n == 0 {
				return
			}
			b = b[n:]
			got, err := p.Parse(block)
			if err != nil {
				return
			}
			if got == nil {
				continue
			}
			if want, err := r.Next(); r.order != order {
				return // a stream of the other byte order, which only Reader knows
			} else if err != nil {
				t.Fatalf("Parser returns %+v, Reader %v", got, err)
			} else if diff := cmp.Diff(want, got, cmp.AllowUnexported(Interface{}, clock{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Fatalf("Parser differs from Reader (-want +got):\n%s", diff)
			}
		}
	})
}
