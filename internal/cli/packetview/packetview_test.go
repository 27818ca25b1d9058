package packetview

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/traffic"
)

var (
	client = netip.MustParseAddrPort("10.0.0.1:4000")
	server = netip.MustParseAddrPort("10.0.0.2:80")
)

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// TestTwoCapturedPods merges what both ends of a connection saw. It is analysed once.
func TestTwoCapturedPods(t *testing.T) {
	f := traffic.New()
	ends := []uint32{f.Interface("eth0", "shop/a, node n1", 0), f.Interface("eth0", "shop/b, node n2", 0)}
	for i, iface := range ends {
		f.At(traffic.Start.Add(time.Duration(i) * 10 * time.Microsecond))
		c := f.Connect(iface, client, server, i == 1, 1, time.Millisecond)
		c.Open()
		c.Exchange("GET / HTTP/1.1\r\nHost: b\r\n\r\n", time.Millisecond, ok)
		c.Reset(true)
	}
	s := read(t, f.Bytes())
	if s.Total.Packets != 14 || s.HTTP.Requests != 1 || s.HTTP.Responses != 1 || s.RTT.Count != 1 {
		t.Errorf("%d packets, %d requests, %d responses, %d round-trip times", s.Total.Packets, s.HTTP.Requests, s.HTTP.Responses, s.RTT.Count)
	}
	if want := (TCP{Connections: 1, Resets: 1}); s.TCP != want {
		t.Errorf("%+v, want %+v", s.TCP, want)
	}
	pairs := s.Pairs()
	if len(pairs) != 1 || pairs[0].A != "shop/a" || pairs[0].B != "shop/b" || pairs[0].Packets() != 14 {
		t.Errorf("pairs %+v", pairs)
	}
}

// TestLoopbackOfTwoPods keeps the connections of two Pods apart that have the same addresses.
func TestLoopbackOfTwoPods(t *testing.T) {
	f := traffic.New()
	for _, pod := range []string{"shop/a", "shop/b"} {
		iface := f.Interface("lo", pod+", node n1", 0)
		c := f.Connect(iface, netip.MustParseAddrPort("127.0.0.1:4000"), netip.MustParseAddrPort("127.0.0.1:80"), false, 1, time.Millisecond)
		c.Open()
		c.Exchange("GET / HTTP/1.1\r\nHost: b\r\n\r\n", time.Millisecond, ok)
	}
	s := read(t, f.Bytes())
	if len(s.Conversations) != 2 || s.HTTP.Requests != 2 {
		t.Fatalf("%d conversations, %d requests", len(s.Conversations), s.HTTP.Requests)
	}
	if a, b := s.Conversations[0].AName, s.Conversations[1].BName; a != "shop/a" || b != "shop/b" {
		t.Errorf("named %q and %q", a, b)
	}
}

func TestInterfaces(t *testing.T) {
	f := traffic.New("requester: alice", "capture: PacketCapture shop/web")
	f.Interface("eth0", "shop/web, node n1", 0)
	f.Interface("eth1", "Intel E810", 0)
	f.Wait(2 * time.Second)
	f.Statistics(0, traffic.Start, 100, 7)
	s := read(t, f.Bytes())
	want := []*Interface{
		{Pod: "shop/web", Node: "n1", Name: "eth0", Ended: true, Dropped: 7, Start: traffic.Start, End: traffic.Start.Add(2 * time.Second)},
		{Name: "eth1", Description: "Intel E810"},
	}
	if diff := cmp.Diff(want, s.Interfaces, cmpopts.IgnoreUnexported(Interface{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(s.Comments) != 2 || s.Application != "sonde test" || !s.First.IsZero() || s.Truncated {
		t.Errorf("comments %q of %q, first %v, truncated %t", s.Comments, s.Application, s.First, s.Truncated)
	}
}

// TestManyInterfaces: what interfaces beyond the limit have dropped is counted, and so are those without statistics.
func TestManyInterfaces(t *testing.T) {
	f := traffic.New()
	for range maxInterfaces + 2 {
		f.Interface("eth0", "", 0)
	}
	f.Statistics(maxInterfaces, traffic.Start, 100, 7)
	s := read(t, f.Bytes())
	if len(s.Interfaces) != maxInterfaces || s.OtherInterfaces != 2 || s.OtherDropped != 7 || s.OtherOpen != 1 {
		t.Errorf("%d interfaces and %d others, which dropped %d packets, and %d of them have no statistics; want 2, 7 and 1",
			len(s.Interfaces), s.OtherInterfaces, s.OtherDropped, s.OtherOpen)
	}
}

// TestOthersAreForgotten: interfaces beyond the limit take memory only while their section is read, and are counted.
func TestOthersAreForgotten(t *testing.T) {
	a := &analysis{interfaces: map[*pcapng.Interface]*Interface{}, summary: &Summary{}}
	for range 3 {
		a.section(&pcapng.Section{})
		for range maxInterfaces {
			a.describe(&pcapng.Interface{})
		}
	}
	a.section(&pcapng.Section{})
	if s := a.summary; len(a.interfaces) != 0 || len(s.Interfaces) != maxInterfaces || s.OtherInterfaces != 2*maxInterfaces || s.OtherOpen != 2*maxInterfaces {
		t.Errorf("%d interfaces are kept, %d others, %d of them without statistics", len(a.interfaces), s.OtherInterfaces, s.OtherOpen)
	}
}

// TestPacketsAfterTheStatistics: of a ring of files whose last one has no statistics, the drops of the earlier ones are known, and no more.
func TestPacketsAfterTheStatistics(t *testing.T) {
	f := traffic.New()
	iface := f.Interface("eth0", "", 0)
	f.Statistics(iface, traffic.Start, 100, 7)
	f.Wait(time.Second)
	f.UDP(iface, 0, netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2"), nil)
	if i := read(t, f.Bytes()).Interfaces[0]; !i.Late || i.Dropped != 7 {
		t.Errorf("late packets %t, %d dropped; want 7 dropped before the last file", i.Late, i.Dropped)
	}
}

func TestDamagedFiles(t *testing.T) {
	b := traffic.Shop()
	s, err := Read(bytes.NewReader(b[:len(b)/2+1]))
	if err != nil || !s.Truncated || s.Total.Packets == 0 {
		t.Errorf("half a file: truncated %t, %d packets, %v", s.Truncated, s.Total.Packets, err)
	}
	if _, err := Read(strings.NewReader("GET / HTTP/1.1\r\n\r\n")); !errors.Is(err, pcapng.ErrFormat) {
		t.Errorf("no capture at all: %v", err)
	}
}

// TestHTTPStreams reads segments in an order, and with losses, that a capture may have.
func TestHTTPStreams(t *testing.T) {
	const get = "GET /a?q=1 HTTP/1.1\r\nHost: h\r\n\r\n"
	tests := map[string]struct {
		build func(f *traffic.File, c *traffic.Connection)
		want  map[RouteKey]map[int]uint64
		// unanswered requests
		unanswered uint64
	}{
		"split within the head": {
			func(_ *traffic.File, c *traffic.Connection) {
				c.Send(true, []byte(get[:20]))
				c.Exchange(get[20:], time.Millisecond, ok[:9], ok[9:])
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {200: 1}},
			0,
		},
		"out of order": {
			func(_ *traffic.File, c *traffic.Connection) {
				seq := c.Client.Seq
				for _, part := range [][2]int{{0, 10}, {20, len(get)}, {10, 20}} {
					c.Segment(true, seq+uint32(part[0]), c.Server.Seq, traffic.Flags{ACK: true}, []byte(get[part[0]:part[1]]))
				}
				c.Client.Seq += uint32(len(get))
				c.Exchange("", time.Millisecond, ok)
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {200: 1}},
			0,
		},
		"repeated": {
			func(f *traffic.File, c *traffic.Connection) {
				seq := c.Client.Seq
				c.Send(true, []byte(get))
				f.Wait(time.Second)
				c.Segment(true, seq, c.Server.Seq, traffic.Flags{ACK: true}, []byte(get))
				c.Exchange("", time.Millisecond, ok)
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {200: 1}},
			0,
		},
		"a part of a body is missing": {
			func(_ *traffic.File, c *traffic.Connection) {
				c.Send(true, []byte(get))
				c.Send(false, []byte("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n"))
				c.Lose(false, 3000)
				for range 2 {
					c.Exchange(get, time.Millisecond, ok)
				}
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {200: 1}},
			2,
		},
		"pipelined": {
			func(_ *traffic.File, c *traffic.Connection) {
				c.Exchange(get+strings.Replace(get, "GET", "HEAD", 1), time.Millisecond, ok+"HTTP/1.1 404 X\r\nContent-Length: 5\r\n\r\n"+ok)
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {200: 1}, {"HEAD", "h", "/a"}: {404: 1}},
			0,
		},
		"an upgrade": {
			func(_ *traffic.File, c *traffic.Connection) {
				c.Exchange(get, time.Millisecond, "HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x05GET /")
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {101: 1}},
			0,
		},
		"continue": {
			func(_ *traffic.File, c *traffic.Connection) {
				c.Exchange("PUT /b HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", time.Millisecond, "HTTP/1.1 100 Continue\r\n\r\n")
				c.Exchange("ab", time.Millisecond, ok)
			},
			map[RouteKey]map[int]uint64{{"PUT", "", "/b"}: {200: 1}},
			0,
		},
		"no HTTP": {
			func(_ *traffic.File, c *traffic.Connection) { c.Exchange("GETTING", time.Millisecond, "HTTP 1") },
			map[RouteKey]map[int]uint64{},
			0,
		},
		"a head without an end": {
			func(_ *traffic.File, c *traffic.Connection) {
				c.Send(true, []byte("GET /a HTTP/1.1\r\nX: "))
				for range 80 {
					c.Send(true, bytes.Repeat([]byte("x"), 1000))
				}
				c.Exchange(get, time.Millisecond, ok)
			},
			map[RouteKey]map[int]uint64{{"GET", "h", "/a"}: {200: 1}},
			0,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := traffic.New()
			c := f.Connect(f.Interface("eth0", "", 0), client, server, false, 1, time.Millisecond)
			c.Open()
			tc.build(f, c)
			s := read(t, f.Bytes())
			got := map[RouteKey]map[int]uint64{}
			for k, r := range s.HTTP.Routes {
				got[k] = r.Statuses
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if s.HTTP.Unanswered != tc.unanswered {
				t.Errorf("%d requests without a response, want %d", s.HTTP.Unanswered, tc.unanswered)
			}
		})
	}
}

// TestKeptBytesAreBounded has heads without an end on more and more connections.
func TestKeptBytesAreBounded(t *testing.T) {
	all := newHTTP()
	var exchanges []*exchange
	for range maxKept/maxHead + 50 {
		x := newExchange(&all)
		for seq, text := uint32(0), append([]byte("GET / HTTP/1.1\r\nX: "), make([]byte, maxHead-100)...); len(text) > 0; {
			n := min(len(text), 1000)
			x.add(&segment{seq: seq, payload: text[:n], length: n, flags: flagACK}, 0)
			seq, text = seq+uint32(n), text[n:]
		}
		exchanges = append(exchanges, x)
	}
	if all.kept > maxKept || all.kept < maxKept/2 {
		t.Errorf("%d bytes are kept", all.kept)
	}
	exchanges[0].add(&segment{flags: flagRST}, 0)
	if first := &exchanges[0].halves[0]; first.kept != 0 {
		t.Errorf("%d bytes are kept of a connection that was reset", first.kept)
	}
	for _, x := range exchanges {
		x.close()
	}
	if all.kept != 0 {
		t.Errorf("%d bytes are kept of closed connections", all.kept)
	}
}

// TestDNSIsBounded asks more than are remembered. No query is counted twice.
func TestDNSIsBounded(t *testing.T) {
	d, f := newDNS(), &flow{conversation: &conversations.Conversation{}}
	const count = 3*maxPending + 5
	for i := range count {
		if i%(1<<16) == 0 {
			f = &flow{}
		}
		d.message(f, traffic.Query(uint16(i), "a.example.", dnsmessage.TypeA), uint64(i))
	}
	d.end()
	if d.Queries != count || d.Unanswered != count || d.Lookups[LookupKey{"a.example.", "A"}].Unanswered != count {
		t.Errorf("%d queries, %d without a response, want %d", d.Queries, d.Unanswered, count)
	}
	// Answered queries take no room of those that wait.
	d = newDNS()
	d.message(f, traffic.Query(1, "slow.example.", dnsmessage.TypeA), 0)
	for i := range count {
		id := uint16(2 + i%(1<<15))
		d.message(f, traffic.Query(id, "a.example.", dnsmessage.TypeA), uint64(i))
		d.message(f, traffic.Answer(id, "a.example.", dnsmessage.TypeA, dnsmessage.RCodeSuccess), uint64(i))
	}
	d.message(f, traffic.Answer(1, "slow.example.", dnsmessage.TypeA, dnsmessage.RCodeSuccess), count)
	if d.end(); d.Queries != count+1 || d.Unanswered != 0 {
		t.Errorf("%d queries, %d without a response, want %d and none", d.Queries, d.Unanswered, count+1)
	}
	d = newDNS()
	d.message(f, []byte("not a message"), 1)
	if d.Responses != 0 {
		t.Error("a response was read from what is none")
	}
}

func FuzzRead(f *testing.F) {
	b := traffic.Shop()
	f.Add(b[:4000])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Read(bytes.NewReader(b))
		if err != nil {
			return
		}
		if s.HTTP.Unanswered > s.HTTP.Requests {
			t.Errorf("%d of %d requests have no response", s.HTTP.Unanswered, s.HTTP.Requests)
		}
		s.Pairs()
		s.RTT.Histogram()
	})
}

// FuzzStream cuts one direction of a connection into segments, and some of them are missing.
func FuzzStream(f *testing.F) {
	f.Add([]byte("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"), uint64(7))
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 X\r\n\r\n"), uint64(99))
	f.Fuzz(func(t *testing.T, text []byte, cuts uint64) {
		all := newHTTP()
		x := newExchange(&all)
		for seq := uint32(0); len(text) > 0; cuts = cuts*6364136223846793005 + 1442695040888963407 {
			n := min(len(text), int(cuts>>58)+1)
			if cuts>>40&7 != 0 {
				s := segment{at: uint64(seq), seq: seq, payload: text[:n], length: n + int(cuts>>33&1)*20, flags: flagACK}
				x.add(&s, 0)
				seq += uint32(s.length - n)
			}
			seq += uint32(n)
			text = text[n:]
		}
		x.close()
		if all.kept < 0 || all.kept > maxKept {
			t.Errorf("%d bytes are kept", all.kept)
		}
		if all.Unanswered > all.Requests {
			t.Errorf("%d of %d requests have no response", all.Unanswered, all.Requests)
		}
	})
}
