package handover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxDials is how many dials of a carrier may run at one time.
	MaxDials = 256
	// DialTimeout ends a dial that the app does not answer.
	DialTimeout = 10 * time.Second
	// PingInterval is the time between two pings.
	PingInterval = 250 * time.Millisecond
	// PingTimeout is how long a carrier may leave a ping without an answer.
	PingTimeout = time.Second
	// CarrierTimeout is how long a carrier may be frozen. Then the opener ends, so that the operator replaces both.
	CarrierTimeout = 10 * time.Second
	// OpenerTimeout is how long a carrier waits for the next ping. Then the opener is frozen, and cannot end the redirection. The carrier
	// must close its listeners, so that the kernel gives new connections to the app.
	OpenerTimeout = 1500 * time.Millisecond
	// outgoing is the room for results and pings that a frozen carrier does not read. A carrier of this package never fills it.
	outgoing = 2 * MaxDials
)

// ErrCarrierGone says that the carrier has closed the connection, has ended, or is frozen.
var ErrCarrierGone = errors.New("the carrier has gone")

// Pod is what the opener does for its carrier.
type Pod interface {
	// Steer begins or ends the redirection of a port.
	Steer(port uint16, on bool) error
	// Listens reports whether the app listens on a port.
	Listens(port uint16) (bool, error)
	// Dial returns a connected socket. The error should have a syscall.Errno in it.
	Dial(ctx context.Context, to netip.AddrPort, scope uint32) (*os.File, error)
	// Answering reports that the carrier has stopped answering pings, or answers again. After an error it is called again.
	Answering(yes bool) error
}

// Server waits for the carrier.
type Server struct {
	listener *net.UnixListener
	user     uint32
}

// Listen makes the opener's socket, which the carrier's user may connect to.
func Listen(path string, user uint32) (*Server, error) {
	// A killed opener has left its socket. Nothing else lies in the volume.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove old socket: %w", err)
	}
	// Any user may connect, and Accept checks which one does. A change of the mode by path could follow a link that the carrier has put
	// there, to any file of the node. So the socket gets its mode as it is made. No other thread of the opener makes files.
	mask := unix.Umask(0)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("listen for the carrier: %w", err)
	}
	return &Server{listener: l, user: user}, nil
}

// Close removes the socket. A session goes on.
func (s *Server) Close() error { return s.listener.Close() }

// Accept returns the first connection of the carrier's user, and closes those of others.
func (s *Server) Accept(ctx context.Context) (*Session, error) {
	stop := context.AfterFunc(ctx, func() { _ = s.listener.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, fmt.Errorf("wait for the carrier: %w", err)
		}
		if user, err := userOf(conn); err == nil && user == s.user {
			return &Session{socket: newSocket(conn), out: make(chan outMessage, outgoing)}, nil
		}
		_ = conn.Close()
	}
}

// userOf returns the user of a connection's peer.
func userOf(c *net.UnixConn) (uint32, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	err = raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, cerr); err != nil {
		return 0, fmt.Errorf("read the peer's user: %w", err)
	}
	return cred.Uid, nil
}

// Session is the connection to a carrier.
type Session struct {
	socket *socket
	pod    Pod
	out    chan outMessage
	dials  atomic.Int32
	// unanswered counts the pings since the last answer. Counting makes a pause of this process harmless, unlike a clock.
	unanswered atomic.Int32
}

// outMessage is a message with a socket that is closed when it has been sent.
type outMessage struct {
	message
	file *os.File
}

// HandOver sends the listeners: the one for IPv4, and where the Pod has IPv6 the one for IPv6. The caller must close them, because a
// listener that is open here would get connections after the carrier's end.
func (s *Session) HandOver(listeners ...*os.File) error {
	return s.socket.send(&message{kind: kindListeners}, listeners...)
}

// Close ends the connection.
func (s *Session) Close() error { return s.socket.conn.Close() }

// Serve answers the carrier until it has gone (ErrCarrierGone), it sends something invalid, or ctx ends. When Serve returns,
// the connection is closed and none of its dials runs.
func (s *Session) Serve(ctx context.Context, pod Pod) error {
	s.pod = pod
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer s.closeOutgoing() // last
	defer wg.Wait()
	defer cancel(nil)
	defer s.Close()
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	wg.Go(func() { s.write(ctx, cancel) })
	wg.Go(func() { s.ping(ctx, cancel) })
	for {
		m, files, err := s.socket.receive()
		closeAll(files) // a carrier has nothing to hand over
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return ErrCarrierGone
		case err != nil:
			return err
		}
		if err := s.handle(ctx, &wg, &m); err != nil {
			return err
		}
	}
}

func (s *Session) handle(ctx context.Context, wg *sync.WaitGroup, m *message) error {
	switch m.kind {
	case kindPong:
		s.unanswered.Store(0)
	case kindSteer:
		s.reply(ctx, m.id, nil, s.pod.Steer(m.port, m.value == 1))
	case kindListens:
		is, err := s.pod.Listens(m.port)
		if err == nil && !is {
			err = syscall.ECONNREFUSED
		}
		s.reply(ctx, m.id, nil, err)
	case kindDial:
		if s.dials.Add(1) > MaxDials {
			s.dials.Add(-1)
			s.reply(ctx, m.id, nil, syscall.EBUSY)
			return nil
		}
		wg.Go(func() {
			defer s.dials.Add(-1)
			dialing, cancel := context.WithTimeout(ctx, DialTimeout)
			defer cancel()
			f, err := s.pod.Dial(dialing, netip.AddrPortFrom(m.addr, m.port), m.scope)
			s.reply(ctx, m.id, f, err)
		})
	default:
		return fmt.Errorf("%w: a carrier may not send kind %d", errMessage, m.kind)
	}
	return nil
}

// reply queues the result of a request.
func (s *Session) reply(ctx context.Context, id uint32, file *os.File, err error) {
	m := outMessage{message: message{kind: kindResult, id: id}, file: file}
	if err != nil {
		errno := syscall.EIO
		_ = errors.As(err, &errno)
		m.value = uint32(errno)
	}
	select {
	case s.out <- m:
	case <-ctx.Done():
		m.close()
	}
}

func (m *outMessage) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

// write sends the queued messages. A frozen carrier blocks it. If it fails, it ends the session.
func (s *Session) write(ctx context.Context, end context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-s.out:
			var files []*os.File
			if m.file != nil {
				files = append(files, m.file)
			}
			err := s.socket.send(&m.message, files...)
			m.close()
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				err = ErrCarrierGone
			}
			if err != nil {
				end(err)
				return
			}
		}
	}
}

// closeOutgoing closes the sockets that were not sent.
func (s *Session) closeOutgoing() {
	for {
		select {
		case m := <-s.out:
			m.close()
		default:
			return
		}
	}
}

// ping pings the carrier, and reports when it stops answering and when it answers again. It ends the session when the carrier is silent
// for CarrierTimeout.
func (s *Session) ping(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(PingInterval)
	defer tick.Stop()
	answering := true
	for id := uint32(0); ; id++ {
		unanswered := s.unanswered.Add(1)
		if yes := unanswered <= int32(PingTimeout/PingInterval); yes != answering && s.pod.Answering(yes) == nil {
			answering = yes
		}
		if unanswered > int32(CarrierTimeout/PingInterval) {
			end(fmt.Errorf("%w: it has not answered for %s", ErrCarrierGone, CarrierTimeout))
			return
		}
		select {
		case s.out <- outMessage{message: message{kind: kindPing, id: id}}:
		default: // a frozen carrier has left the queue full
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
