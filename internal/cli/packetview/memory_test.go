package packetview

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/traffic"
)

// flood is a capture that is made while it is read: each connection has other addresses, and leaves something incomplete.
type flood struct {
	template []byte
	packets  []pcapng.Packet
	left     int
	n        uint32
	buf      []byte
	// peak is the most memory of the heap that was in use, in bytes.
	peak uint64
}

func newFlood(connections int) *flood {
	f := traffic.New()
	iface := f.Interface("eth0", "", 0)
	c := f.Connect(iface, netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.200.0.1:80"), false, 7, time.Millisecond)
	c.Open()
	c.Exchange("GET /a HTTP/1.1\r\nHost: a\r\n\r\n", time.Millisecond, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	c.Send(true, append([]byte("POST /b HTTP/1.1\r\nX: "), bytes.Repeat([]byte("x"), 1200)...)) // a head without an end
	c.Lose(true, 100)
	c.Send(true, bytes.Repeat([]byte("y"), 1200))
	b := f.Bytes()
	flood := &flood{left: connections}
	r := pcapng.NewReader(bytes.NewReader(b))
	for {
		block, err := r.Next()
		if err != nil {
			return flood
		}
		if p, ok := block.(*pcapng.Packet); ok {
			one := *p
			one.Data = bytes.Clone(p.Data)
			flood.packets = append(flood.packets, one)
			continue
		}
		flood.buf = b[:r.Offset()]
	}
}

func (f *flood) Read(b []byte) (int, error) {
	if len(f.buf) == 0 && f.left == 0 {
		return 0, io.EOF
	}
	if len(f.buf) == 0 {
		f.left--
		f.n++
		if f.n%4096 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			f.peak = max(f.peak, m.HeapInuse)
		}
		f.template = f.template[:0]
		for i := range f.packets {
			f.template = pcapng.AppendPacket(f.template, f.connection(&f.packets[i]))
		}
		f.buf = f.template
	}
	n := copy(b, f.buf)
	f.buf = f.buf[n:]
	return n, nil
}

// connection gives the client of a packet another address, and the names in it another number.
func (f *flood) connection(p *pcapng.Packet) *pcapng.Packet {
	const source, destination = 14 + 12, 14 + 16
	at := source
	if p.Flags == pcapng.Inbound {
		at = destination
	}
	binary.BigEndian.PutUint32(p.Data[at:], 10<<24|f.n&0x7fffff)
	if i := bytes.Index(p.Data, []byte("GET /")); i >= 0 && len(p.Data) > i+6 {
		p.Data[i+5] = byte('a' + f.n%26)
	}
	return p
}

// TestMemoryIsBounded reads more connections than are kept.
func TestMemoryIsBounded(t *testing.T) {
	const most = 256 << 20
	f := newFlood(maxConversations + maxConversations/8)
	s, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if f.peak > most {
		t.Errorf("%d MiB were in use", f.peak>>20)
	}
	if len(s.Conversations) != maxConversations || s.Other.Packets == 0 {
		t.Errorf("%d conversations, and %d packets of others", len(s.Conversations), s.Other.Packets)
	}
}
