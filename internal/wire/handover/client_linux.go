package handover

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// connectRetry is the pause between attempts to connect to an opener that has not started yet.
const connectRetry = 50 * time.Millisecond

// errGone says that the opener has closed the connection, or does not answer.
var errGone = errors.New("the opener has gone")

// Client is the carrier's side. Its methods may be called by several goroutines.
type Client struct {
	socket    *socket
	listeners []net.Listener
	done      chan struct{}
	dials     chan struct{} // has room for MaxDials

	// silent counts the ping intervals since the opener's last message.
	silent atomic.Int32

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]*request
}

// request waits for its result.
type request struct {
	dial   bool
	result chan result // has room for one
}

// result of a request.
type result struct {
	errno syscall.Errno
	conn  *net.TCPConn
	err   error
}

// Connect connects to the opener, and waits for it until ctx ends. It returns when the opener has handed over the listeners.
func Connect(ctx context.Context, path string) (*Client, error) {
	conn, err := connect(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &Client{
		socket: newSocket(conn), done: make(chan struct{}), dials: make(chan struct{}, MaxDials), waiting: map[uint32]*request{},
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	err = c.receiveListeners()
	if !stop() && err == nil {
		err = ctx.Err() // the deadline would end the client later
	}
	if err != nil {
		c.closeListeners()
		return nil, errors.Join(err, ctx.Err(), conn.Close())
	}
	go c.receive()
	go c.watch()
	return c, nil
}

func connect(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, network, path)
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		// The opener makes its socket, and then opens it to this user.
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, fmt.Errorf("connect to the opener: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the opener: %w", errors.Join(context.Cause(ctx), err))
		case <-time.After(connectRetry):
		}
	}
}

func (c *Client) receiveListeners() error {
	m, files, err := c.socket.receive()
	if err != nil {
		return fmt.Errorf("wait for the opener's listeners (it accepts one carrier, of one user): %w", err)
	}
	defer closeAll(files)
	if m.kind != kindListeners || len(files) == 0 {
		return fmt.Errorf("%w: the opener's first message has kind %d and %d sockets", errMessage, m.kind, len(files))
	}
	for _, f := range files {
		l, err := net.FileListener(f)
		if err != nil {
			return fmt.Errorf("take listener: %w", err)
		}
		c.listeners = append(c.listeners, l)
	}
	return nil
}

// Listeners returns the listeners in the Pod's network namespace: the one for IPv4, and the one for IPv6 if the Pod has IPv6. They
// get the steered connections, whose local address is the one that their peer has connected to. The caller closes them.
func (c *Client) Listeners() []net.Listener { return c.listeners }

// Done is closed when the opener has gone or is frozen, or Close was called.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection, and with it the opener. It closes no listener and no connection.
func (c *Client) Close() error {
	err := c.socket.conn.Close()
	<-c.done
	return err
}

func (c *Client) closeListeners() {
	for _, l := range c.listeners {
		_ = l.Close()
	}
}

// Steer begins or ends the redirection of new connections to a port to the listeners. It may be repeated.
func (c *Client) Steer(ctx context.Context, port uint16, on bool) error {
	m := &message{kind: kindSteer, port: port}
	if on {
		m.value = 1
	}
	id, r, err := c.request(m)
	if err != nil {
		return err
	}
	res := c.await(ctx, id, r)
	if res.err == nil && res.errno != 0 {
		res.err = fmt.Errorf("steer port %d: %w", port, res.errno)
	}
	return res.err
}

// Listens reports whether the app listens on a port.
func (c *Client) Listens(ctx context.Context, port uint16) (bool, error) {
	id, r, err := c.request(&message{kind: kindListens, port: port})
	if err != nil {
		return false, err
	}
	res := c.await(ctx, id, r)
	switch {
	case res.err != nil:
		return false, res.err
	case res.errno == syscall.ECONNREFUSED:
		return false, nil
	case res.errno != 0:
		return false, fmt.Errorf("find out who listens on port %d: %w", port, res.errno)
	}
	return true, nil
}

// Dial connects to an address of the Pod from that same address. Steering leaves the connection alone. At most MaxDials run at one time;
// others wait. The error is a *net.OpError with the system call's error in it, like a net.Dialer's.
func (c *Client) Dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	conn, err := c.dial(ctx, to)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: net.TCPAddrFromAddrPort(to), Err: err}
	}
	return conn, nil
}

func (c *Client) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	m, err := dialRequest(to)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c.dials <- struct{}{}: // received when the opener has answered
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, errGone
	}
	id, r, err := c.request(m)
	if err != nil {
		return nil, err
	}
	res := c.await(ctx, id, r)
	switch {
	case res.err != nil:
		return nil, res.err
	case res.errno != 0:
		return nil, os.NewSyscallError("connect", res.errno)
	}
	return res.conn, nil
}

func dialRequest(to netip.AddrPort) (*message, error) {
	m := &message{kind: kindDial, port: to.Port(), addr: to.Addr().Unmap().WithZone("")}
	if !m.addr.IsValid() || m.addr.IsUnspecified() || m.port == 0 {
		return nil, os.NewSyscallError("connect", syscall.EINVAL)
	}
	zone := to.Addr().Zone()
	if zone == "" {
		return m, nil
	}
	// A connection's zone has the index of the Pod's interface, which package net replaces by the name that this index has here.
	if i, err := net.InterfaceByName(zone); err == nil {
		m.scope = uint32(i.Index)
		return m, nil
	}
	index, err := strconv.ParseUint(zone, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("zone %q is no interface: %w", zone, syscall.EINVAL)
	}
	m.scope = uint32(index)
	return m, nil
}

// request sends a request and registers it.
func (c *Client) request(m *message) (uint32, *request, error) {
	r := &request{dial: m.kind == kindDial, result: make(chan result, 1)}
	c.mu.Lock()
	if c.waiting == nil {
		c.mu.Unlock()
		return 0, nil, errGone
	}
	for c.next++; c.waiting[c.next] != nil; { // an old request may still have the number
		c.next++
	}
	m.id = c.next
	c.waiting[m.id] = r
	c.mu.Unlock()
	if err := c.socket.send(m); err != nil {
		_ = c.socket.conn.Close() // the receiver fails, and with it all requests
		return 0, nil, errors.Join(errGone, err)
	}
	return m.id, r, nil
}

// await returns the result of a request. If ctx ends first, the opener's result is thrown away when it comes.
func (c *Client) await(ctx context.Context, id uint32, r *request) result {
	select {
	case res := <-r.result:
		return res
	case <-ctx.Done():
	}
	go func() { // ends with the result, which the opener's timeout bounds
		if res := <-r.result; res.conn != nil {
			_ = res.conn.Close()
		}
	}()
	return result{err: fmt.Errorf("wait for the opener's result %d: %w", id, ctx.Err())}
}

// watch ends the connection when the opener has sent nothing for OpenerTimeout. It counts intervals, so that a pause of this process is
// harmless.
func (c *Client) watch() {
	tick := time.NewTicker(PingInterval)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
			if c.silent.Add(1) > int32(OpenerTimeout/PingInterval) {
				_ = c.socket.conn.Close() // the receiver fails, and with it all requests
				return
			}
		}
	}
}

// receive handles the opener's messages until the connection ends.
func (c *Client) receive() {
	for {
		m, files, err := c.socket.receive()
		if err != nil {
			c.fail(err)
			return
		}
		c.silent.Store(0)
		switch m.kind {
		case kindPing:
			if err := c.socket.send(&message{kind: kindPong, id: m.id}); err != nil {
				closeAll(files)
				c.fail(err)
				return
			}
		case kindResult:
			c.deliver(&m, files)
		default: // nothing else has a meaning here
		}
		closeAll(files)
	}
}

// deliver gives a result to its request.
func (c *Client) deliver(m *message, files []*os.File) {
	c.mu.Lock()
	r := c.waiting[m.id]
	delete(c.waiting, m.id)
	c.mu.Unlock()
	if r == nil {
		return
	}
	res := result{errno: syscall.Errno(m.value)}
	if r.dial {
		<-c.dials
		if res.errno == 0 {
			res.conn, res.err = connOf(files)
		}
	}
	r.result <- res
}

// connOf makes a connection of a dial's socket.
func connOf(files []*os.File) (*net.TCPConn, error) {
	if len(files) == 0 { // the kernel has dropped it
		return nil, os.NewSyscallError("recvmsg", syscall.EMFILE)
	}
	conn, err := net.FileConn(files[0])
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%w: the opener's socket is a %T", errMessage, conn), conn.Close())
	}
	return tcp, nil
}

// fail ends all requests, and closes done.
func (c *Client) fail(err error) {
	_ = c.socket.conn.Close()
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	close(c.done)
	for _, r := range waiting {
		r.result <- result{err: errors.Join(errGone, err)}
	}
}
