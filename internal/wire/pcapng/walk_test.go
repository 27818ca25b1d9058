package pcapng_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// A file cut anywhere is complete up to its last complete block, wherever the search begins.
func TestWhole(t *testing.T) {
	b := pcapng.AppendSection(nil, &pcapng.Section{Application: "sonde"})
	ends := []int64{0, int64(len(b))}
	b = pcapng.AppendInterface(b, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	ends = append(ends, int64(len(b)))
	for n := range 5 {
		b = pcapng.AppendPacket(b, &pcapng.Packet{Data: make([]byte, 100*n), Length: 9000})
		ends = append(ends, int64(len(b)))
	}
	for size := range int64(len(b)) + 1 {
		var want int64
		for _, end := range ends {
			if end <= size {
				want = end
			}
		}
		for _, from := range ends {
			if from > size {
				continue
			}
			if got := pcapng.CompleteLen(bytes.NewReader(b), from, size); got != want {
				t.Fatalf("of %d bytes %d are complete, searched from %d; want %d", size, got, from, want)
			}
		}
		length, packets, next := pcapng.CompleteBlocks(b[:size])
		at := slices.Index(ends, want)
		if int64(length) != want || packets != uint64(max(0, at-2)) {
			t.Fatalf("of %d bytes %d are complete, with %d packets; want %d", size, length, packets, want)
		}
		if next != 0 && want+int64(next) != ends[at+1] || next == 0 && size-want >= pcapng.PacketHeaderLen {
			t.Fatalf("of %d bytes, the next block has %d", size, next)
		}
	}
}

func TestWholeOfNonsense(t *testing.T) {
	good := pcapng.AppendSection(nil, &pcapng.Section{})
	cases := map[string]struct {
		bytes []byte
		want  int64
	}{
		"nothing":           {nil, 0},
		"zeros":             {make([]byte, 100), 0},
		"zeros at the end":  {append(bytes.Clone(good), make([]byte, 64)...), int64(len(good))},
		"odd length":        {append(bytes.Clone(good), 1, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 13), int64(len(good))},
		"huge length":       {append(bytes.Clone(good), 1, 0, 0, 0, 0, 0, 0, 0xff), int64(len(good))},
		"lengths that vary": {append(bytes.Clone(good), 6, 0, 0, 0, 12, 0, 0, 0, 16, 0, 0, 0), int64(len(good))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := pcapng.CompleteLen(bytes.NewReader(tc.bytes), 0, int64(len(tc.bytes))); got != tc.want {
				t.Errorf("%d bytes, want %d", got, tc.want)
			}
			if length, _, next := pcapng.CompleteBlocks(tc.bytes); int64(length) != tc.want || next != 0 {
				t.Errorf("%d bytes and a block of %d, want %d and none", length, next, tc.want)
			}
		})
	}
	if got := pcapng.CompleteLen(bytes.NewReader(good), 8, 4); got != 8 {
		t.Errorf("a file that became shorter: %d", got)
	}
}

func FuzzWhole(f *testing.F) {
	f.Add(pcapng.AppendSection(nil, &pcapng.Section{}), int64(0))
	f.Fuzz(func(t *testing.T, b []byte, from int64) {
		from = max(0, min(from, int64(len(b))))
		if n := pcapng.CompleteLen(bytes.NewReader(b), from, int64(len(b))); n < from || n > int64(len(b)) {
			t.Errorf("%d of %d bytes from %d", n, len(b), from)
		}
	})
}

// Both ways to find the complete blocks agree, and neither reads beyond the bytes that there are.
func FuzzCompleteBlocks(f *testing.F) {
	packet := pcapng.AppendPacket(pcapng.AppendSection(nil, &pcapng.Section{}), &pcapng.Packet{Data: []byte("data"), Length: 4})
	f.Add(packet)
	f.Add(packet[:len(packet)-1])
	f.Add([]byte("\x06\x00\x00\x00\x0c\x00\x00\x00\x0c\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		length, packets, next := pcapng.CompleteBlocks(b)
		counted := uint64(0)
		want, err := pcapng.Walk(bytes.NewReader(b), func(i pcapng.BlockInfo) {
			if i.Packet {
				counted++
			}
		})
		if err != nil || int64(length) != want || packets != counted {
			t.Errorf("%d bytes and %d packets, want %d and %d (%v)", length, packets, want, counted, err)
		}
		if next != 0 && next <= len(b)-length {
			t.Errorf("the next block has %d bytes of %d", next, len(b)-length)
		}
	})
}
