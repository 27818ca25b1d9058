package capture

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

// goSockets, in the environment, makes the test binary a program with the sockets of mode all of test/sockets/testdata/sockets.c.
const goSockets = "SONDE_CAPTURE_GO_SOCKETS"

// runGoSockets is that program: all IP4 PEER4 IP6 PEER6 PORT.
func runGoSockets(args []string) error {
	if len(args) != 6 {
		return fmt.Errorf("%d arguments, want mode, two addresses of the target and the peer each, and a port", len(args))
	}
	base, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	for v6, ip := range []string{args[1], args[3]} {
		s := goSocket{ip: ip, peer: net.JoinHostPort(args[2+2*v6], echoPort)}
		for i, open := range []func(port int) error{s.serveTCP, s.serveUDP, s.talkTCP, s.talkUDP, s.talkUnconnected} {
			if err := open(base + 2*i + v6); err != nil {
				return err
			}
		}
	}
	for i := range 10 {
		fmt.Println(os.Getpid(), base+i)
	}
	fmt.Println("ready")
	select {}
}

// echoPort is the port of the peer's echo servers, as in the other programs.
const echoPort = "9000"

// goSocket has addresses of one family.
type goSocket struct{ ip, peer string }

func (s goSocket) at(port int) string { return net.JoinHostPort(s.ip, strconv.Itoa(port)) }

func (s goSocket) serveTCP(port int) error {
	l, err := net.Listen("tcp", s.at(port))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return nil
}

func (s goSocket) serveUDP(port int) error {
	c, err := net.ListenPacket("udp", s.at(port))
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 2000)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(b[:n], from)
		}
	}()
	return nil
}

func (s goSocket) talkTCP(port int) error {
	local, _ := net.ResolveTCPAddr("tcp", s.at(port)) // an address of the test
	d := net.Dialer{LocalAddr: local}
	c, err := d.Dial("tcp", s.peer)
	if err != nil {
		return err
	}
	go talk(c, func() error { _, err := c.Write([]byte("hello")); return err })
	return nil
}

func (s goSocket) talkUDP(port int) error {
	local, _ := net.ResolveUDPAddr("udp", s.at(port))
	peer, _ := net.ResolveUDPAddr("udp", s.peer)
	c, err := net.DialUDP("udp", local, peer)
	if err != nil {
		return err
	}
	go talk(c, func() error { _, err := c.Write([]byte("hello")); return err })
	return nil
}

func (s goSocket) talkUnconnected(port int) error {
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
