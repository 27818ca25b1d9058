package pcapng

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// unhex reads bytes as a person writes them: blanks and line ends do not count.
func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes are composed by hand from the figures of draft-ietf-opsawg-pcapng, sections 4.1 to 4.6.
func TestGoldenBytes(t *testing.T) {
	cases := map[string]struct {
		got  []byte
		want string
	}{
		"section without options": {
			AppendSection(nil, &Section{}),
			"0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000",
		},
		"section": {
			AppendSection(nil, &Section{Hardware: "x86", OS: "L", Application: "sonde", Comments: []string{"hi"}}),
			`0a0d0d0a 44000000 4d3c2b1a 0100 0000 ffffffffffffffff
			0100 0200 6869 0000  0200 0300 783836 00  0300 0100 4c 000000  0400 0500 736f6e6465 000000
			00000000 44000000`,
		},
		"interface": {
			AppendInterface(nil, &Interface{Name: "lo", Description: "a", Filter: "ip", LinkType: LinkTypeRaw, SnapLen: 96}),
			`01000000 38000000 6500 0000 60000000
			0200 0200 6c6f 0000  0300 0100 61 000000  0900 0100 09 000000  0b00 0300 00 6970 00
			00000000 38000000`,
		},
		"packet": {
			AppendPacket(nil, &Packet{Interface: 1, Time: 0x0102030405060708, Data: []byte{1, 2, 3, 4, 5}, Length: 9, Flags: Outbound}),
			`06000000 34000000 01000000 04030201 08070605 05000000 09000000 0102030405 000000
			0200 0400 02000000 00000000 34000000`,
		},
		"packet without options": {
			AppendPacket(nil, &Packet{Data: []byte{1, 2, 3, 4}, Length: 4}),
			`06000000 24000000 00000000 00000000 00000000 04000000 04000000 01020304 24000000`,
		},
		"statistics": {
			AppendStatistics(nil, &Statistics{Interface: 2, Time: 1<<32 | 7, Start: 1 << 32, End: 2, Received: new(uint64(5)), IfDrop: new(uint64(4)), FilterAccept: new(uint64(3)), OSDrop: new(uint64(2)), Delivered: new(uint64(1))}),
			`05000000 70000000 02000000 01000000 07000000
			0200 0800 01000000 00000000  0300 0800 00000000 02000000
			0400 0800 0500000000000000  0500 0800 0400000000000000  0600 0800 0300000000000000
			0700 0800 0200000000000000  0800 0800 0100000000000000
			00000000 70000000`,
		},
		"names": {
			AppendNames(nil, &Names{Records: []Name{{netip.MustParseAddr("10.0.0.1"), "a/b"}, {netip.MustParseAddr("fd00::1"), "c"}}, Comments: []string{"hi"}}),
			`04000000 40000000  0100 0800 0a000001 612f6200  0200 1200 fd000000000000000000000000000001 6300 0000
			0000 0000  0100 0200 6869 0000 00000000 40000000`,
		},
		"no names": {AppendNames(nil, &Names{Comments: []string{"hi"}}), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(hex.EncodeToString(unhex(t, tc.want)), hex.EncodeToString(tc.got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A header and a trailer written around a packet in place are the same block as the appended one.
func TestPacketInPlace(t *testing.T) {
	for size := range 9 {
		data := bytes.Repeat([]byte{0xaa}, size)
		want := AppendPacket(nil, &Packet{Interface: 3, Time: 77, Data: data, Length: 100, Flags: Inbound | Unicast})
		b := bytes.Repeat([]byte{0xff}, PacketHeaderLen+size+MaxPacketTrailerLen)
		copy(b[PacketHeaderLen:], data)
		PutPacketHeader(b, 3, 77, uint32(size), 100)
		n := PutPacketTrailer(b[PacketHeaderLen+size:], uint32(size), Inbound|Unicast)
		if n != PacketTrailerLen(size) || PacketLen(size) != len(want) {
			t.Errorf("size %d: trailer %d, announced %d; block %d, announced %d", size, n, PacketTrailerLen(size), len(want), PacketLen(size))
		}
		if diff := cmp.Diff(want, b[:PacketLen(size)]); diff != "" {
			t.Errorf("size %d (-want +got):\n%s", size, diff)
		}
	}
}

func TestTextsAreCutToFit(t *testing.T) {
	cases := map[string]string{
		"too long":     strings.Repeat("é", 40000),
		"not UTF-8":    "a\xffb",
		"zero byte":    "a\x00b",
		"just fitting": strings.Repeat("x", maxOptionLen),
	}
	for name, text := range cases {
		t.Run(name, func(t *testing.T) {
			b := AppendSection(nil, &Section{Comments: []string{text}})
			b = AppendInterface(b, &Interface{Name: text, Filter: text})
			r := NewReader(bytes.NewReader(b))
			for range 2 {
				block, err := r.Next()
				if err != nil {
					t.Fatal(err)
				}
				switch block := block.(type) {
				case *Section:
					checkText(t, block.Comments[0])
				case *Interface:
					checkText(t, block.Name)
					checkText(t, block.Filter)
				}
			}
		})
	}
}

func checkText(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || len(s) > maxOptionLen || s == "" || strings.ContainsRune(s, 0) {
		t.Errorf("text of %d bytes", len(s))
	}
}

func TestWritingAPacketAllocatesNothing(t *testing.T) {
	b := make([]byte, 0, 1<<16)
	p := Packet{Data: make([]byte, 1500), Length: 1500, Flags: Inbound}
	if n := testing.AllocsPerRun(100, func() { b = AppendPacket(b[:0], &p) }); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

// PacketHeaderOf reads the values that PutPacketHeader wrote, at any address.
func TestPacketHeaderOf(t *testing.T) {
	b := make([]byte, 3+PacketHeaderLen)[3:]
	PutPacketHeader(b, 3, 0x1_2345_6789_abcd, 60, 1500)
	h := PacketHeaderOf(b)
	if !h.IsPacket() || h.Size != uint32(PacketLen(60)) || h.Interface != 3 || h.Time() != 0x1_2345_6789_abcd || h.CapLen != 60 || h.Length != 1500 {
		t.Errorf("%+v", h)
	}
	if PacketHeaderOf(AppendInterface(nil, &Interface{Name: "eth0"})).IsPacket() {
		t.Error("a description counts as a packet")
	}
}
