package traffic

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Addresses of the Pods in Shop.
var (
	web1     = netip.MustParseAddr("10.32.1.17")
	web2     = netip.MustParseAddr("10.32.2.23")
	web2IPv6 = netip.MustParseAddr("fd00:32:2::23")
	frontend = netip.MustParseAddr("10.32.3.5")
	prices   = netip.MustParseAddrPort("10.96.14.2:8080")
	database = netip.MustParseAddrPort("10.32.4.9:5432")
	resolver = netip.MustParseAddrPort("10.96.0.10:53")
)

// Shop returns the capture of a Deployment with two Pods during 30 s. They answer HTTP requests, ask another service, a
// database and DNS. From second 18 on, for 5 s, their network loses packets and the other service fails.
func Shop() []byte {
	f := New(
		"requester: alice@example.com",
		"capture: PacketCapture shop/web-x7k2p, uid 0b9a7c1e-5d3f-4f60-9a35-6c2f1c1f8a11, jobId qwer",
		"target: Deployment/web in namespace shop, pod web-5c7765d854-9md72, uid 3f6a2b0e-7f37-4c53-8e0e-0d1b0c5f2d61, node n1",
		"filter: none, every packet was wanted",
	)
	s := &shop{file: f, random: rand.New(rand.NewPCG(20, 11))}
	s.web[0] = f.Interface("eth0", "shop/web-5c7765d854-9md72, node n1", 0)
	s.web[1] = f.Interface("eth0", "shop/web-5c7765d854-t6nd4, node n2", 12)
	s.lo = f.Interface("lo", "shop/web-5c7765d854-9md72, node n1", 0)
	for at := time.Duration(0); at < 30*time.Second; at += s.between(20, 180) {
		s.troubled = at >= 18*time.Second && at < 23*time.Second
		f.At(Start.Add(at))
		s.visit()
	}
	s.oddities()
	f.At(Start.Add(30 * time.Second))
	f.Statistics(s.web[0], Start, 2345, 0)
	f.Statistics(s.web[1], Start, 2211, 37)
	f.Statistics(s.lo, Start, 12, 0)
	return f.Bytes()
}

type shop struct {
	file     *File
	random   *rand.Rand
	web      [2]uint32
	lo       uint32
	port     uint16
	id       uint16
	troubled bool
}

// between returns a random time in milliseconds.
func (s *shop) between(low, high int) time.Duration {
	return time.Duration(low*1000+s.random.IntN((high-low)*1000)) * time.Microsecond
}

func (s *shop) client(a netip.Addr) netip.AddrPort {
	s.port++
	return netip.AddrPortFrom(a, 32768+s.port)
}

func (s *shop) connect(iface uint32, client, server netip.AddrPort, atServer bool) *Connection {
	return s.file.Connect(iface, client, server, atServer, s.random.Uint32(), s.between(0, 2)+100*time.Microsecond)
}

var pages = []string{"/", "/cart", "/products/42", "/products/7", "/static/app.css", "/api/orders", "/healthz"}

// visit is one request of the frontend, and what the Pod does for it.
func (s *shop) visit() {
	which := s.random.IntN(2)
	iface, pod := s.web[which], []netip.Addr{web1, web2}[which]
	s.lookup(iface, pod)
	c := s.connect(iface, s.client(frontend), netip.AddrPortFrom(pod, 8080), true)
	c.Open()
	for range 1 + s.random.IntN(3) {
		page := pages[s.random.IntN(len(pages))]
		s.prices(iface, pod)
		c.Exchange(request("GET", page+"?session=1", "web.shop", ""), s.between(1, 30), s.response(page))
	}
	if s.random.IntN(3) == 0 {
		s.query(iface, pod)
	}
	c.Close()
}

func (s *shop) lookup(iface uint32, pod netip.Addr) {
	client := s.client(pod)
	s.id++
	switch {
	case s.troubled && s.random.IntN(3) == 0:
		s.file.Lookup(iface, client, resolver, s.id, "prices.shop.svc.cluster.local.", dnsmessage.RCodeServerFailure, s.between(40, 900))
	case s.random.IntN(4) == 0:
		s.file.Lookup(iface, client, resolver, s.id, "prices.shop.shop.svc.cluster.local.", dnsmessage.RCodeNameError, s.between(0, 2))
		fallthrough
	default:
		s.file.Lookup(iface, client, resolver, s.id+1000, "prices.shop.svc.cluster.local.", dnsmessage.RCodeSuccess, s.between(0, 3))
	}
}

// prices asks the other service, which fails while there is trouble.
func (s *shop) prices(iface uint32, pod netip.Addr) {
	c := s.connect(iface, s.client(pod), prices, false)
	if s.troubled && s.random.IntN(4) == 0 { // nothing listens
		c.Segment(true, c.Client.Seq, 0, Flags{SYN: true}, nil)
		c.Client.Seq++
		s.file.Wait(c.RTT)
		c.Server.Window = 0
		c.Segment(false, 0, c.Client.Seq, Flags{RST: true, ACK: true}, nil)
		return
	}
	c.Open()
	body := strings.Repeat("p", 200+s.random.IntN(3000))
	text, took := response(200, body), s.between(1, 12)
	if s.troubled && s.random.IntN(2) == 0 {
		text, took = response(503, "no upstream"), s.between(80, 700)
	}
	req := request("POST", "/v1/quote", "prices.shop", `{"sku":42,"n":1}`)
	if s.troubled {
		s.slowly(c, req)
	} else {
		c.Send(true, []byte(req))
	}
	s.file.Wait(took)
	for part := range parts(text, 1300) {
		c.Send(false, []byte(part))
		s.file.Wait(c.RTT / 20)
	}
	c.Ack(true)
	s.file.Wait(c.RTT)
	c.Close()
}

// slowly sends a request whose first segment is lost.
func (s *shop) slowly(c *Connection, req string) {
	seq := c.Client.Seq
	c.Send(true, []byte(req))
	s.file.Wait(s.between(200, 260))
	c.Segment(true, seq, c.Server.Seq, Flags{ACK: true, PSH: true}, []byte(req))
}

// query is a connection whose protocol the report does not read.
func (s *shop) query(iface uint32, pod netip.Addr) {
	c := s.connect(iface, s.client(pod), database, false)
	c.Open()
	for range 1 + s.random.IntN(4) {
		c.Exchange("Q\x00\x00\x00\x14SELECT price FROM item", s.between(0, 9), "T"+strings.Repeat("\x00row", 300))
	}
	c.Reset(true)
}

func (s *shop) response(page string) string {
	switch {
	case page == "/healthz":
		return response(204, "")
	case page == "/products/7":
		return response(404, "no such product")
	case s.troubled && s.random.IntN(2) == 0:
		return response(502, "bad gateway")
	}
	return response(200, strings.Repeat("x", 300+s.random.IntN(900)))
}

func request(method, path, host, body string) string {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: test\r\n", method, path, host)
	if body != "" {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

func response(status int, body string) string {
	text := fmt.Sprintf("HTTP/1.1 %d X\r\nServer: test\r\n", status)
	if status != 204 {
		text += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

// parts splits a text into segments.
func parts(text string, size int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for len(text) > 0 {
			n := min(size, len(text))
			if !yield(text[:n]) {
				return
			}
			text = text[n:]
		}
	}
}

// oddities are packets that captures have now and then.
func (s *shop) oddities() {
	f := s.file
	f.At(Start.Add(24 * time.Second))
	arp := &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
		SourceHwAddress: mac(web1), SourceProtAddress: web1.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: frontend.AsSlice(),
	}
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: mac(web1), DstMAC: []byte{255, 255, 255, 255, 255, 255}, EthernetType: layers.EthernetTypeARP}, arp); err != nil {
		panic(err) // the layers are complete
	}
	f.Frame(s.web[0], pcapng.Outbound, b.Bytes())
	f.Frame(s.web[0], pcapng.Outbound, f.build(s.web[0], layers.IPProtocolICMPv4, web1, frontend,
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 1, Seq: 1}, gopacket.Payload("ping")))

	s.bodies()
	s.segments()
	f.Snap = 80 // the end of each packet was not captured
	s.query(s.web[0], web1)
	f.Snap = 0
	s.names()
	local := s.connect(s.lo, netip.MustParseAddrPort("127.0.0.1:50000"), netip.MustParseAddrPort("127.0.0.1:9090"), false)
	local.Open()
	local.Exchange(request("GET", "/metrics", "localhost:9090", ""), time.Millisecond, response(200, strings.Repeat("m", 500)))
	local.Close()
}

// bodies are HTTP messages with each kind of framing, over IPv6.
func (s *shop) bodies() {
	f := s.file
	server := netip.AddrPortFrom(web2IPv6, 8080)
	c := s.connect(s.web[1], s.client(netip.MustParseAddr("fd00:32:3::5")), server, true)
	c.Open()
	c.Exchange(request("HEAD", "/cart", "web.shop", ""), 3*time.Millisecond, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n")
	c.Exchange(request("GET", "/events", "web.shop", ""), 5*time.Millisecond,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "6;x=y\r\n world\r\n", "0\r\n\r\n")
	c.Exchange(request("GET", "/cached", "web.shop", ""), time.Millisecond, "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n")
	half := request("POST", "/upload", "web.shop", strings.Repeat("u", 1200))
	c.Send(true, []byte(half[:500]))
	f.Wait(7 * time.Millisecond)
	c.Exchange(half[500:], 11*time.Millisecond, response(201, ""))
	c.Send(true, []byte(request("GET", "/report", "web.shop", "")))
	f.Wait(4 * time.Millisecond)
	c.Send(false, []byte("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end"))
	f.Wait(6 * time.Millisecond)
	c.Segment(false, c.Server.Seq, c.Client.Seq, Flags{FIN: true, ACK: true}, nil)
	c.Server.Seq++
	f.Wait(c.RTT)
	c.Segment(true, c.Client.Seq, c.Server.Seq, Flags{FIN: true, ACK: true}, nil)
	c.Client.Seq++
	f.Wait(c.RTT)
	c.Ack(false)
}

// segments are a connection with each kind of repetition, and the same ports once more.
func (s *shop) segments() {
	f := s.file
	client, server := s.client(frontend), netip.AddrPortFrom(web1, 9000)
	c := f.Connect(s.web[0], client, server, true, 0xfffff000, 2*time.Millisecond) // sequence numbers wrap around
	c.Open()
	data := []byte(strings.Repeat("d", 1000))
	first := c.Client.Seq
	for range 4 {
		c.Send(true, data)
	}
	f.Wait(time.Millisecond)
	for range 3 { // the second segment was lost
		c.Segment(false, c.Server.Seq, first+1000, Flags{ACK: true}, nil)
		f.Wait(100 * time.Microsecond)
	}
	c.Segment(true, first+1000, c.Server.Seq, Flags{ACK: true}, data) // fast
	f.Wait(2 * time.Millisecond)
	c.Ack(false)
	f.Wait(time.Millisecond)
	c.Segment(true, first, c.Server.Seq, Flags{ACK: true}, data) // spurious
	f.Wait(time.Millisecond)
	late := c.Client.Seq
	c.Lose(true, 1000)
	c.Send(true, data)
	f.Wait(200 * time.Microsecond)
	c.Segment(true, late, c.Server.Seq, Flags{ACK: true}, data) // out of order
	f.Wait(time.Millisecond)
	c.Ack(false)
	f.Wait(45 * time.Second / 100)
	c.Segment(true, c.Client.Seq-1, c.Server.Seq, Flags{ACK: true}, nil) // keep-alive
	c.Ack(false)
	c.Server.Window = 0
	c.Ack(false)
	f.Wait(200 * time.Millisecond)
	c.Segment(true, c.Client.Seq, c.Server.Seq, Flags{ACK: true}, []byte("d")) // zero-window probe
	c.Ack(false)
	c.Server.Window = 65160
	c.Ack(false)
	c.Lose(true, 3000) // was not captured
	c.Send(true, data)
	c.Ack(false)
	c.Close()

	f.Wait(20 * time.Millisecond)
	again := f.Connect(s.web[0], client, server, true, 77, 3*time.Millisecond)
	again.Open()
	again.Reset(false)
}

// names are lookups with repetitions, without an answer, with the ID of an earlier one, and over TCP.
func (s *shop) names() {
	f := s.file
	client := s.client(web1)
	f.UDP(s.web[0], pcapng.Outbound, client, resolver, Query(7, "slow.shop.", dnsmessage.TypeA))
	f.Wait(2 * time.Second / 10)
	f.UDP(s.web[0], pcapng.Outbound, client, resolver, Query(7, "slow.shop.", dnsmessage.TypeA))
	f.Wait(9 * time.Millisecond)
	f.UDP(s.web[0], pcapng.Inbound, resolver, client, Answer(7, "slow.shop.", dnsmessage.TypeA, dnsmessage.RCodeSuccess))
	f.Wait(time.Millisecond)
	f.UDP(s.web[0], pcapng.Inbound, resolver, client, Answer(7, "slow.shop.", dnsmessage.TypeA, dnsmessage.RCodeSuccess))
	f.Wait(300 * time.Millisecond)
	f.Lookup(s.web[0], client, resolver, 7, "slow.shop.", dnsmessage.RCodeRefused, 4*time.Millisecond)
	f.Lookup(s.web[0], s.client(web1), resolver, 8, "silent.shop.", 0, -1)

	c := s.connect(s.web[0], s.client(web1), resolver, false)
	c.Open()
	query, answer := Query(9, "big.shop.", dnsmessage.TypeTXT), Answer(9, "big.shop.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess)
	c.Exchange(string([]byte{0, byte(len(query))})+string(query), 6*time.Millisecond, string([]byte{0, byte(len(answer))})+string(answer))
	c.Close()
}
