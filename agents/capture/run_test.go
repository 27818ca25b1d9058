package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/frames"
)

// running is a running capture.
type running struct {
	Capture
	t      *testing.T
	cancel context.CancelCauseFunc
	result chan Result
	path   string
}

func start(t *testing.T, e Engine, cfg *Config) *running {
	t.Helper()
	return startCtx(t.Context(), t, e, cfg)
}

func startCtx(ctx context.Context, t *testing.T, e Engine, cfg *Config) *running {
	t.Helper()
	return startChanged(ctx, t, e, cfg, func(*session) {})
}

// startChanged is start after a change of the session.
func startChanged(ctx context.Context, t *testing.T, e Engine, cfg *Config, change func(*session)) *running {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Base = "web"
	c, err := e.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := c.(*session); ok {
		change(s)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{Capture: c, t: t, cancel: cancel, result: make(chan Result, 1), path: filepath.Join(cfg.Dir, "web.pcapng")}
	go func() { r.result <- c.Run(ctx) }()
	t.Cleanup(func() { cancel(nil) })
	return r
}

// stop ends the capture and checks its result by checkResult.
func (r *running) stop() Result {
	r.t.Helper()
	r.cancel(nil)
	return r.wait()
}

func (r *running) wait() Result {
	r.t.Helper()
	select {
	case res := <-r.result:
		checkResult(r.t, &res)
		return res
	case <-time.After(60 * time.Second):
		r.t.Fatal("the capture does not end")
		return Result{}
	}
}

// until waits until a condition holds for the account.
func (r *running) until(what string, ok func(record.Account) bool) {
	r.t.Helper()
	await(r.t, what, func() bool { return ok(r.Account()) })
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// checkResult checks that the account adds up and agrees with the file.
func checkResult(t *testing.T, res *Result) {
	t.Helper()
	a := res.Account
	for _, c := range append([]record.InterfaceAccount{{Name: "total", Counters: a.Counters}}, a.Interfaces...) {
		if c.Received != c.Written+c.Dropped() {
			t.Errorf("%s: %d received, but %d written and %d dropped", c.Name, c.Received, c.Written, c.Dropped())
		}
		if c.DroppedKernel != 0 {
			t.Errorf("%s: the kernel counts %d packets that it did not hand over", c.Name, c.DroppedKernel)
		}
	}
	st, err := os.Stat(res.Path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() != a.FileBytes {
		t.Errorf("file has %d bytes, account says %d", st.Size(), a.FileBytes)
	}
	f := readFile(t, res.Path)
	if f.err != nil {
		t.Errorf("read result: %v", f.err)
	}
	for i, in := range f.ifaces {
		if got := uint64(len(f.packets[i])); got != a.Interfaces[i].Written {
			t.Errorf("%s: file has %d packets, account says %d", in.Name, got, a.Interfaces[i].Written)
		}
		if s := f.stats[i]; res.Reason != recording.DiskFull && (s == nil || *s.FilterAccept != a.Interfaces[i].Received || *s.Delivered != a.Interfaces[i].Written) {
			t.Errorf("%s: statistics in the file %+v, account %+v", in.Name, s, a.Interfaces[i])
		}
	}
}

// content is a parsed file.
type content struct {
	section *pcapng.Section
	ifaces  []*pcapng.Interface
	packets map[int][]pcapng.Packet
	stats   map[int]*pcapng.Statistics
	err     error // nil for a complete file
}

func readFile(t *testing.T, path string) *content {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &content{packets: map[int][]pcapng.Packet{}, stats: map[int]*pcapng.Statistics{}}
	r := pcapng.NewReader(bytes.NewReader(b))
	for {
		block, err := r.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				c.err = err
			}
			return c
		}
		switch block := block.(type) {
		case *pcapng.Section:
			c.section = block
		case *pcapng.Interface:
			c.ifaces = append(c.ifaces, block)
		case *pcapng.Packet:
			p := *block
			p.Data = bytes.Clone(p.Data)
			c.packets[int(p.Interface)] = append(c.packets[int(p.Interface)], p)
		case *pcapng.Statistics:
			c.stats[int(block.Interface)] = block
		}
	}
}

func (c *content) iface(t *testing.T, name string) int {
	t.Helper()
	for i, in := range c.ifaces {
		if in.Name == name {
			return i
		}
	}
	t.Fatalf("no interface %s in the file", name)
	return 0
}

// numbers counts the numbered packets of one interface by number.
func (c *content) numbers(t *testing.T, name string) map[uint32]int {
	t.Helper()
	found := map[uint32]int{}
	for _, p := range c.packets[c.iface(t, name)] {
		if n, ok := numberOf(p.Data); ok {
			found[n]++
		}
	}
	return found
}

// numberOf reads the number in a UDP packet to the discard port.
func numberOf(b []byte) (uint32, bool) {
	udp := 34
	if len(b) > 14 && b[12] == 0x86 {
		udp = 54
	}
	if len(b) < udp+12 || binary.BigEndian.Uint16(b[udp+2:]) != frames.Discard {
		return 0, false
	}
	return binary.BigEndian.Uint32(b[udp+8:]), true
}

// exactly checks that each of the numbers occurs once, and no other number.
func exactly(t *testing.T, found map[uint32]int, from, to uint32) {
	t.Helper()
	bad := 0
	for n := from; n < to; n++ {
		if found[n] != 1 {
			bad++
		}
	}
	if bad > 0 || len(found) != int(to-from) {
		t.Errorf("%d of %d packets are not there exactly once; %d numbers found", bad, to-from, len(found))
	}
}

// sender sends numbered packets. With a receiver it keeps the number in flight small, so that no queue of the kernel
// overflows before the capture.
type sender struct {
	t    *testing.T
	conn *net.UDPConn
	to   *net.UDPAddr
	recv *net.UDPConn
	size int
}

func (s *sender) send(from, to uint32) {
	s.t.Helper()
	const inFlight = 128
	b := make([]byte, max(s.size, 4))
	for n := from; n < to; n++ {
		binary.BigEndian.PutUint32(b, n)
		if _, err := s.conn.WriteToUDP(b, s.to); err != nil {
			s.t.Fatal(err)
		}
		if s.recv != nil && (n%inFlight == inFlight-1 || n == to-1) {
			s.receive(n)
		}
	}
}

// receive reads until number n has arrived.
func (s *sender) receive(n uint32) {
	b := make([]byte, 65536)
	_ = s.recv.SetReadDeadline(time.Now().Add(10 * time.Second))
	for {
		k, _, err := s.recv.ReadFromUDP(b)
		if err != nil {
			s.t.Fatalf("receive packet %d: %v", n, err)
		}
		if k >= 4 && binary.BigEndian.Uint32(b) == n {
			return
		}
	}
}

// senderTo connects two namespaces (or one with itself) by a windowed sender to ip.
func (n *testNet) senderTo(t *testing.T, from, to *os.File, ip string) *sender {
	t.Helper()
	recv := n.udp(t, to, "udp", net.JoinHostPort(ip, "9"))
	if err := recv.SetReadBuffer(1 << 20); err != nil {
		t.Fatal(err)
	}
	return &sender{t: t, conn: n.udp(t, from, "udp", ":0"), to: &net.UDPAddr{IP: net.ParseIP(ip), Port: frames.Discard}, recv: recv}
}

// blind returns a sender to the peer without a receiver.
func (n *testNet) blind(t *testing.T, size int) *sender {
	t.Helper()
	return &sender{t: t, conn: n.udp(t, n.target, "udp4", ":0"), to: &net.UDPAddr{IP: net.ParseIP(peerIP), Port: frames.Discard}, size: size}
}
