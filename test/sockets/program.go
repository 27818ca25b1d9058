package sockets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// goProgram, in the environment, makes a test binary the Go program.
const goProgram = "SONDE_TEST_GO_SOCKETS"

// runGo is that program: MODE IP4 PEER4 IP6 PEER6 PORT. It has the sockets of mode all of
// testdata/sockets.c. In mode spawn it also starts other programs without end. It returns only an error.
func runGo(args []string) error {
	ctx := context.Background()
	if len(args) != 6 {
		return fmt.Errorf("%d arguments, want mode, two addresses of the target and the peer each, and a port", len(args))
	}
	base, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	for v6, ip := range []string{args[1], args[3]} {
		s := goSocket{ip: ip, peer: net.JoinHostPort(args[2+2*v6], echoPort)}
		for i, open := range []func(ctx context.Context, port int) error{s.serveTCP, s.serveUDP, s.talkTCP, s.talkUDP, s.talkUnconnected} {
			if err := open(ctx, base+2*i+v6); err != nil {
				return err
			}
		}
	}
	for i := range 10 {
		fmt.Println(os.Getpid(), base+i)
	}
	spawns := args[0] == "spawn"
	if spawns {
		_ = exec.CommandContext(ctx, "/bin/true").Run() // before the first one Go forks a child that starts nothing, to see what the kernel can
	}
	fmt.Println("ready")
	for spawns {
		start := time.Now()
		_ = exec.CommandContext(ctx, "/bin/true").Run()
		time.Sleep(max(20*time.Millisecond, 4*time.Since(start))) // a slow start of a program must not fill the time
	}
	select {}
}

// goSocket has addresses of one family.
type goSocket struct{ ip, peer string }

func (s goSocket) at(port int) string { return net.JoinHostPort(s.ip, strconv.Itoa(port)) }

func (s goSocket) serveTCP(ctx context.Context, port int) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.at(port))
	if err != nil {
		return err
	}
	go echoTCP(l)
	return nil
}

// echoTCP sends back what each connection brings, until the listener is closed.
func echoTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
	}
}

func (s goSocket) serveUDP(ctx context.Context, port int) error {
	c, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", s.at(port))
	if err != nil {
		return err
	}
	go echoUDP(c)
	return nil
}

// echoUDP sends back each datagram, until the socket is closed.
func echoUDP(c net.PacketConn) {
	b := make([]byte, 2000)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(b[:n], from)
	}
}

func (s goSocket) talkTCP(ctx context.Context, port int) error {
	local, _ := net.ResolveTCPAddr("tcp", s.at(port)) // an address of the test
	d := net.Dialer{LocalAddr: local}
	c, err := d.DialContext(ctx, "tcp", s.peer)
	if err != nil {
		return err
	}
	go talk(c, func() error { _, err := c.Write([]byte("hello")); return err })
	return nil
}

func (s goSocket) talkUDP(_ context.Context, port int) error {
	local, _ := net.ResolveUDPAddr("udp", s.at(port))
	peer, _ := net.ResolveUDPAddr("udp", s.peer)
	c, err := net.DialUDP("udp", local, peer)
	if err != nil {
		return err
	}
	go talk(c, func() error { _, err := c.Write([]byte("hello")); return err })
	return nil
}

func (s goSocket) talkUnconnected(_ context.Context, port int) error {
	local, _ := net.ResolveUDPAddr("udp", s.at(port))
	peer, _ := net.ResolveUDPAddr("udp", s.peer)
	c, err := net.ListenUDP("udp", local)
	if err != nil {
		return err
	}
	go talk(c, func() error { _, err := c.WriteToUDP([]byte("hello"), peer); return err })
	return nil
}

// talk sends and awaits answers until the socket is closed. Datagrams may be lost.
func talk(c net.Conn, send func() error) {
	b := make([]byte, 100)
	for !errors.Is(send(), net.ErrClosed) {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Read(b)
		time.Sleep(10 * time.Millisecond)
	}
}
