package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"time"
)

// mptcpWorkload listens with MPTCP, as servers in Go do by default. A client of TCP and one of MPTCP have connected before the trace.
// During it each of them connects twice more. One of these connections and the old one end, and the other one stays open.
func mptcpWorkload(ownNet bool) {
	runtime.LockOSThread()
	if ownNet {
		loopbackUp()
	}
	var c net.ListenConfig
	c.SetMultipathTCP(true)
	l := value(c.Listen(context.Background(), "tcp4", "127.0.0.1:0"))
	var pairs, open []connectionPair
	for _, mptcp := range []bool{false, true} {
		pairs = append(pairs, pairOf(l, mptcp))
	}
	wait("ready " + l.Addr().String())
	for _, mptcp := range []bool{false, true} {
		pairs = append(pairs, pairOf(l, mptcp))
		open = append(open, pairOf(l, mptcp))
		open[len(open)-1].exchange(3, 4)
	}
	for _, p := range pairs {
		p.exchange(5, 7)
		must(p.client.Close())
		_ = value(io.Copy(io.Discard, p.server))
		must(p.server.Close())
	}
	awaitEnds(l)
	wait("done")
	runtime.KeepAlive(open)
	os.Exit(0)
}

// connectionPair is both ends of a connection.
type connectionPair struct{ client, server net.Conn }

func pairOf(l net.Listener, mptcp bool) connectionPair {
	var d net.Dialer
	d.SetMultipathTCP(mptcp)
	client := value(d.Dial("tcp4", l.Addr().String()))
	p := connectionPair{client, value(l.Accept())}
	for _, c := range []net.Conn{p.client, p.server} {
		if tcp, ok := c.(*net.TCPConn); !ok || value(tcp.MultipathTCP()) != mptcp {
			panic(fmt.Sprintf("MPTCP is %v, want %v", !mptcp, mptcp))
		}
	}
	return p
}

func (p connectionPair) exchange(question, answer int) {
	for _, way := range []struct {
		from, to net.Conn
		bytes    int
	}{{p.client, p.server, question}, {p.server, p.client, answer}} {
		_ = value(way.from.Write(make([]byte, way.bytes)))
		_ = value(io.ReadFull(way.to, make([]byte, way.bytes)))
	}
}

// awaitEnds waits until the kernel has ended all connections of a listener that were closed.
func awaitEnds(l net.Listener) {
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		panic("not TCP")
	}
	port := fmt.Sprintf(":%04X ", at.Port)
	for ending := true; ending; time.Sleep(10 * time.Millisecond) {
		ending = false
		for line := range bytes.Lines(value(os.ReadFile("/proc/self/net/tcp"))) {
			const state = 3
			f := strings.Fields(string(line))
			// Established, in TIME_WAIT, or listening: proc_net_tcp of the kernel's documentation.
			ending = ending || strings.Contains(string(line), port) && f[state] != "01" && f[state] != "06" && f[state] != "0A"
		}
	}
}
