package handover

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakePod dials on this machine.
type fakePod struct {
	steered   chan uint16
	answering chan bool
	failures  atomic.Int32  // how often Answering(true) fails
	hold      chan struct{} // dials wait until it is closed
	dials     atomic.Int32
	most      atomic.Int32
}

func newFakePod() *fakePod {
	p := &fakePod{steered: make(chan uint16, 10), answering: make(chan bool, 10), hold: make(chan struct{})}
	close(p.hold)
	return p
}

func (p *fakePod) Steer(port uint16, on bool) error {
	if !on {
		return syscall.ENOSPC
	}
	p.steered <- port
	return nil
}

// Listens: the app listens on port 8080, and of port 1 nothing is known.
func (p *fakePod) Listens(port uint16) (bool, error) {
	if port == 1 {
		return false, syscall.EPERM
	}
	return port == 8080, nil
}

func (p *fakePod) Dial(ctx context.Context, to netip.AddrPort, _ uint32) (*os.File, error) {
	n := p.dials.Add(1)
	defer p.dials.Add(-1)
	for most := p.most.Load(); n > most && !p.most.CompareAndSwap(most, n); {
		most = p.most.Load()
	}
	select {
	case <-p.hold:
	case <-ctx.Done():
		return nil, syscall.ETIMEDOUT
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.(*net.TCPConn).File()
}

func (p *fakePod) Answering(yes bool) error {
	if yes && p.failures.Add(-1) >= 0 {
		return syscall.EPERM
	}
	p.answering <- yes
	return nil
}

const testTimeout = time.Minute

// serve serves a carrier of this user until the test ends. The error of Serve is sent to the channel.
func serve(t *testing.T, p Pod) (path string, ended <-chan error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	server, err := Listen(path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer server.Close()
		session, err := server.Accept(t.Context())
		if err != nil {
			end <- err
			return
		}
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			end <- err
			return
		}
		f, err := l.File()
		if err == nil {
			err = errors.Join(l.Close(), session.HandOver(f), f.Close())
		}
		if err != nil {
			end <- err
			return
		}
		end <- session.Serve(t.Context(), p)
	}()
	t.Cleanup(func() { <-done })
	return path, end
}

// begin connects a client.
func begin(t *testing.T, p Pod) (*Client, <-chan error) {
	t.Helper()
	path, ended := serve(t, p)
	c, err := Connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, ended
}

func await[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(testTimeout):
		t.Fatalf("nothing within %v", testTimeout)
	}
	return v
}

func TestHandOver(t *testing.T) {
	c, ended := begin(t, newFakePod())
	if len(c.Listeners()) != 1 {
		t.Fatalf("%d listeners", len(c.Listeners()))
	}
	l := c.Listeners()[0]
	defer l.Close()
	conn, err := c.Dial(t.Context(), l.Addr().(*net.TCPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if n, err := peer.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	_ = c.Close()
	if err := await(t, ended); !errors.Is(err, ErrCarrierGone) {
		t.Errorf("the session ends with %v", err)
	}
	if err := c.Steer(t.Context(), 1, true); !errors.Is(err, errGone) {
		t.Errorf("steer afterwards: %v", err)
	}
}

func TestErrors(t *testing.T) {
	p := newFakePod()
	c, _ := begin(t, p)
	if err := c.Steer(t.Context(), 8080, true); err != nil || await(t, p.steered) != 8080 {
		t.Errorf("steer: %v", err)
	}
	if err := c.Steer(t.Context(), 8080, false); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("failing steer: %v", err)
	}
	for port, want := range map[uint16]bool{8080: true, 8081: false} {
		if is, err := c.Listens(t.Context(), port); err != nil || is != want {
			t.Errorf("the app listens on port %d: %t, %v", port, is, err)
		}
	}
	if _, err := c.Listens(t.Context(), 1); !errors.Is(err, syscall.EPERM) {
		t.Errorf("failing question: %v", err)
	}
	closed, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	var op *net.OpError
	if _, err := c.Dial(t.Context(), closed.Addr().(*net.TCPAddr).AddrPort()); !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) {
		t.Errorf("dial of a closed port: %v", err)
	}
	for _, to := range []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:80"), netip.MustParseAddrPort("127.0.0.1:0"), netip.MustParseAddrPort("[fe80::1%none]:80")} {
		if _, err := c.Dial(t.Context(), to); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("dial %v: %v", to, err)
		}
	}
}

// Dials wait for each other, and a dial that nobody waits for any more leaves no connection.
func TestManyDials(t *testing.T) {
	p := newFakePod()
	p.hold = make(chan struct{})
	c, _ := begin(t, p)
	l := c.Listeners()[0]
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	given, cancel := context.WithCancel(t.Context())
	abandoned := make(chan error, 1)
	go func() {
		_, err := c.Dial(given, to)
		abandoned <- err
	}()
	const dials = 2 * MaxDials
	results := make(chan error, dials)
	for range dials {
		go func() {
			conn, err := c.Dial(t.Context(), to)
			if err == nil {
				_ = conn.Close()
			}
			results <- err
		}()
	}
	for p.dials.Load() < MaxDials {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := await(t, abandoned); !errors.Is(err, context.Canceled) {
		t.Errorf("abandoned: %v", err)
	}
	close(p.hold)
	for range dials {
		if err := await(t, results); err != nil {
			t.Errorf("dial: %v", err)
		}
	}
	if most := p.most.Load(); most > MaxDials {
		t.Errorf("%d dials at one time", most)
	}
}

// rawCarrier is a carrier that breaks the protocol.
func rawCarrier(t *testing.T, p Pod) (*socket, <-chan error) {
	t.Helper()
	path, ended := serve(t, p)
	conn, err := connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s := newSocket(conn)
	m, files, err := s.receive()
	closeAll(files)
	if err != nil || m.kind != kindListeners {
		t.Fatalf("first message %+v, %v", m, err)
	}
	return s, ended
}

func TestFrozenCarrier(t *testing.T) {
	p := newFakePod()
	p.failures.Store(2)
	s, ended := rawCarrier(t, p)
	if await(t, p.answering) {
		t.Error("it answers")
	}
	// It answers again: all pings so far. The Pod is asked until it has followed.
	for again := false; !again; {
		m, _, err := s.receive()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.send(&message{kind: kindPong, id: m.id}); err != nil {
			t.Fatal(err)
		}
		select {
		case again = <-p.answering:
		default:
		}
	}
	// It is silent from now on. Its messages are read, so that they are no reason to end.
	silent := time.Now()
	go func() {
		for {
			if _, _, err := s.receive(); err != nil {
				return
			}
		}
	}()
	err := await(t, ended)
	if took := time.Since(silent); !errors.Is(err, ErrCarrierGone) || took < CarrierTimeout/2 {
		t.Errorf("the session ends after %s with %v", took, err)
	}
}

// A carrier ends the connection to an opener that is silent, and leaves one that pings alone.
func TestFrozenOpener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), network, path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	steered, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer steered.Close()
	file, err := steered.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	opened := make(chan *socket, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			close(opened)
			return
		}
		s := newSocket(conn.(*net.UnixConn))
		_ = s.send(&message{kind: kindListeners}, file)
		opened <- s
	}()
	c, err := Connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.closeListeners()
	s := await(t, opened)
	defer s.conn.Close()
	for range 3 * OpenerTimeout / PingInterval {
		if err := s.send(&message{kind: kindPing}); err != nil {
			t.Fatal("the carrier has left an opener that pings:", err)
		}
		time.Sleep(PingInterval)
	}
	silent := time.Now()
	await(t, c.Done())
	if took := time.Since(silent); took < OpenerTimeout/2 {
		t.Errorf("the carrier leaves a silent opener after %s", took)
	}
	if _, err := c.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:1")); !errors.Is(err, errGone) {
		t.Errorf("a dial afterwards: %v", err)
	}
}

// A carrier that sends without reading stops at the bound of dials, and hurts only itself.
func TestGreedyCarrier(t *testing.T) {
	p := newFakePod()
	p.hold = make(chan struct{})
	s, _ := rawCarrier(t, p)
	to := netip.MustParseAddr("127.0.0.1")
	for id := range uint32(MaxDials + 1) {
		if err := s.send(&message{kind: kindDial, id: id, port: 1, addr: to}); err != nil {
			t.Fatal(err)
		}
	}
	for {
		m, _, err := s.receive()
		if err != nil {
			t.Fatal(err)
		}
		if m.kind != kindResult {
			continue
		}
		if m.id != MaxDials || syscall.Errno(m.value) != syscall.EBUSY {
			t.Errorf("result %+v", m)
		}
		break
	}
	if most := p.most.Load(); most > MaxDials {
		t.Errorf("%d dials at one time", most)
	}
}

func TestInvalidCarrier(t *testing.T) {
	cases := map[string]func(*socket) error{
		"a message of the opener": func(s *socket) error { return s.send(&message{kind: kindResult}) },
		"too short":               func(s *socket) error { _, err := s.conn.Write([]byte{1}); return err },
		"too long":                func(s *socket) error { _, err := s.conn.Write(make([]byte, 1000)); return err },
	}
	for name, send := range cases {
		t.Run(name, func(t *testing.T) {
			s, ended := rawCarrier(t, newFakePod())
			if err := send(s); err != nil {
				t.Fatal(err)
			}
			if err := await(t, ended); !errors.Is(err, errMessage) {
				t.Errorf("the session ends with %v", err)
			}
		})
	}
}

// The sockets that a carrier sends are closed.
func TestForeignSockets(t *testing.T) {
	s, _ := rawCarrier(t, newFakePod())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := errors.Join(s.send(&message{kind: kindPong}, w), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the pipe's other end is open: %d, %v", n, err)
	}
}

func TestConnectWaitsForTheOpener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithTimeout(t.Context(), 3*connectRetry)
	defer cancel()
	if _, err := Connect(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an opener: %v", err)
	}
	server, err := Listen(path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel = context.WithTimeout(t.Context(), 3*connectRetry)
	defer cancel()
	if _, err := Connect(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an opener that does not hand over: %v", err)
	}
}

// A carrier that puts a link in the place of the socket cannot have the mode of the link's target changed. Any user may connect to the socket.
func TestListenFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	path, victim := filepath.Join(dir, "s"), filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stop, swapped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(swapped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = os.Remove(path)
				_ = os.Symlink(victim, path)
			}
		}
	}()
	for range 2000 {
		if s, err := Listen(path, uint32(os.Geteuid())); err == nil {
			_ = s.Close()
		}
	}
	close(stop)
	<-swapped
	if info, err := os.Stat(victim); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the link's target has mode %v, %v", info.Mode(), err)
	}
	s, err := Listen(path, uint32(os.Geteuid()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o666 != 0o666 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
}

// Accept refuses other users. TestOneCarrier in agents/opener shows it with real ones.
func TestAcceptOfAnotherUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server, err := Listen(path, uint32(os.Geteuid())+1)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	accepted := make(chan error, 1)
	go func() {
		_, err := server.Accept(ctx)
		accepted <- err
	}()
	if _, err := Connect(t.Context(), path); !errors.Is(err, io.EOF) {
		t.Errorf("another user's carrier: %v", err)
	}
	cancel()
	if err := await(t, accepted); !errors.Is(err, context.Canceled) {
		t.Errorf("accept: %v", err)
	}
}
