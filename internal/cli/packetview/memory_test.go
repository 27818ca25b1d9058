package packetview

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
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
	// peak is the most memory of the heap that was in use, in bytes, and live the most that something referred to.
	peak uint64
	live int64
}

func newFlood(connections int, incomplete func(c *traffic.Connection)) *flood {
	f := traffic.New()
	iface := f.Interface("eth0", "", 0)
	c := f.Connect(iface, netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.200.0.1:80"), false, 7, time.Millisecond)
	c.Open()
	c.Exchange("GET /a HTTP/1.1\r\nHost: a\r\n\r\n", time.Millisecond, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	incomplete(c)
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
		if f.n%65536 == 0 {
			f.live = max(f.live, heapInUse())
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
	const most, mostLive = 256 << 20, SoftMemoryLimit / 2
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(SoftMemoryLimit)) // as the command does
	for name, incomplete := range map[string]func(c *traffic.Connection){
		"heads": func(c *traffic.Connection) {
			c.Send(true, append([]byte("POST /b HTTP/1.1\r\nX: "), bytes.Repeat([]byte("x"), 1200)...)) // a head without an end
			c.Lose(true, 100)
			c.Send(true, bytes.Repeat([]byte("y"), 1200))
		},
		"requests without a response": func(c *traffic.Connection) {
			c.Send(true, bytes.Repeat([]byte("GET /a HTTP/1.1\r\n\r\n"), maxWaiting))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlood(maxConversations+maxConversations/8, incomplete)
			s, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			if f.peak > most || f.live > mostLive {
				t.Errorf("%d MiB were in use, and %d MiB without garbage", f.peak>>20, f.live>>20)
			}
			if len(s.Conversations) != maxConversations || s.Other.Packets == 0 {
				t.Errorf("%d conversations, and %d packets of others", len(s.Conversations), s.Other.Packets)
			}
		})
	}
}

// TestHeadsAreForgotten reads long heads. Neither a route nor a request that waits for its response keeps the rest of its head.
func TestHeadsAreForgotten(t *testing.T) {
	const most, heads = 4 << 20, 512
	long := strings.Repeat("x", maxHead/2)
	for name, line := range map[string]string{
		"a route each":          "GET /%d HTTP/1.1",
		"a method for each":     "M%d / HTTP/1.1",
		"a long method":         "M%d" + long + " / HTTP/1.1",
		"a long path":           "GET /%d" + long + " HTTP/1.1",
		"more than routes kept": "GET /beyond%d" + long + " HTTP/1.1",
	} {
		t.Run(name, func(t *testing.T) {
			all := newHTTP()
			if strings.Contains(line, "beyond") {
				for i := range maxRoutes {
					all.route(&head{path: strconv.Itoa(i)})
				}
			}
			before := heapInUse()
			var exchanges []*exchange
			for i := range heads {
				if i%maxWaiting == 0 {
					exchanges = append(exchanges, sending(&all, "GET / HTTP/1.1\r\n\r\n"))
				}
				text := fmt.Sprintf(line, i) + "\r\nHost: h\r\nX: " + strings.Repeat("x", maxHead/2-100) + "\r\n\r\n"
				send(exchanges[len(exchanges)-1], text)
			}
			if used := heapInUse() - before; used > most {
				t.Errorf("%d MiB are in use, want at most %d", used>>20, most>>20)
			}
			runtime.KeepAlive(exchanges)
			if want := uint64(heads + heads/maxWaiting); all.Requests != want {
				t.Errorf("%d requests, want %d", all.Requests, want)
			}
		})
	}
}

// TestAnsweredRequestsAreForgotten has a connection with many requests that were answered, and one that was not.
func TestAnsweredRequestsAreForgotten(t *testing.T) {
	all := newHTTP()
	x := sending(&all, strings.Repeat("GET / HTTP/1.1\r\n\r\n", maxWaiting))
	response := []byte(strings.Repeat("HTTP/1.1 204 \r\n\r\n", maxWaiting-1))
	x.add(&segment{payload: response, length: len(response), flags: flagACK}, 1)
	if n := cap(x.waiting); len(x.waiting) != 1 || all.waiting != 1 || n > 4 {
		t.Errorf("%d and %d requests wait, with room for %d, want one with room for 4", len(x.waiting), all.waiting, n)
	}
	x.close()
	if all.waiting != 0 || all.Unanswered != 1 {
		t.Errorf("%d requests wait for a closed connection, %d are unanswered, want none and one", all.waiting, all.Unanswered)
	}
}

// sending returns the exchange of a connection that begins with a request.
func sending(all *HTTP, text string) *exchange {
	x := newExchange(all)
	send(x, text)
	return x
}

func send(x *exchange, text string) {
	x.add(&segment{seq: x.halves[0].next, payload: []byte(text), length: len(text), flags: flagACK}, 0)
}

// heapInUse returns the bytes of the heap that something refers to.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
