package pcapng

import (
	"bufio"
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestGap(t *testing.T) {
	others := AppendInterface(nil, &Interface{Name: "eth0", LinkType: LinkTypeEthernet})
	for name, g := range map[string]*Gap{
		"a sign of life": {}, "packets": {Bytes: 1 << 40, Packets: 7}, "with an interface": {Bytes: 100, Packets: 1, Others: others},
		"a time": {Until: 1 << 60}, "all": {Bytes: 100, Packets: 1, Until: 5, File: "web-0000000002.pcapng", At: 1 << 40, Others: others},
		"a file": {File: "web.pcapng", At: 7}, "removed files": {Packets: 9, File: "x"}, "a long name": {File: strings.Repeat("x", maxFileName), Others: others},
	} {
		got, err := ParseGap(AppendGap(nil, g))
		if err != nil || got.Bytes != g.Bytes || got.Packets != g.Packets || got.Until != g.Until || got.File != g.File || got.At != g.At || !bytes.Equal(got.Others, g.Others) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, g)
		}
	}
	if got, err := ParseGap(others); got != nil || err != nil {
		t.Errorf("an interface is taken for %+v, %v", got, err)
	}
	if _, err := ParseGap(finish(order.AppendUint32(order.AppendUint32(nil, typeGap), 0), 0, 8)); !errors.Is(err, ErrFormat) {
		t.Errorf("a short gap: %v", err)
	}
	// Readers of before there were times and files see a block of a type that they skip.
	for _, g := range []Gap{{Until: 5}, {File: "web.pcapng"}} {
		old := AppendGap(nil, &g)
		if b, err := new(Parser).Parse(old[24 : len(old)-4]); b != nil || err != nil {
			t.Errorf("%+v is taken for %v, %v", g, b, err)
		}
	}
	// Other readers skip it.
	stream := AppendGap(AppendSection(nil, &Section{}), &Gap{Bytes: 1})
	r := NewReader(bytes.NewReader(append(stream, others...)))
	for _, want := range []bool{false, true} {
		b, err := r.Next()
		if _, ok := b.(*Interface); err != nil || ok != want {
			t.Errorf("%T, %v", b, err)
		}
	}
}

func FuzzSplitBlocks(f *testing.F) {
	f.Add(AppendGap(AppendSection(nil, &Section{}), &Gap{Bytes: 1}))
	f.Add(AppendGap(nil, &Gap{Until: 1, File: "web.pcapng", At: 7}))
	f.Add([]byte("\x0a\x0d\x0d\x0a\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := bufio.NewScanner(bytes.NewReader(b))
		s.Buffer(nil, maxBlockLen)
		s.Split(SplitBlocks)
		n := 0
		for s.Scan() {
			n += len(s.Bytes())
			if g, err := ParseGap(s.Bytes()); err == nil && g != nil && len(g.Others)+len(g.File) > len(b) {
				t.Error("a gap has more than its stream")
			}
		}
		if n > len(b) {
			t.Errorf("%d bytes of %d", n, len(b))
		}
	})
}
