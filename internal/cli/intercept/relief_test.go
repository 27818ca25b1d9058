package intercept

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// lateProcess is a developer's process. It reads the first line of each connection. It echoes those that begin with "echo", and reads no
// more of the others until late is closed. Then it sends how they end.
type lateProcess struct {
	net.Listener
	late chan struct{}
	ends chan error
}

func newLateProcess(t *testing.T) *lateProcess {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := &lateProcess{l, make(chan struct{}), make(chan error, 64)}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(conn)
		}
	}()
	return p
}

func (p *lateProcess) serve(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || line == "echo\n" {
		_, _ = io.Copy(conn, r)
		return
	}
	<-p.late
	_, err := io.Copy(io.Discard, r)
	p.ends <- err
}

// fill sends into a stream without end. It returns how the stream's answer ends.
func fill(stream *tunnel.Stream) <-chan error {
	go func() {
		for block := make([]byte, 64<<10); ; {
			if _, err := stream.Write(block); err != nil {
				return
			}
		}
	}()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, stream)
		ended <- err
	}()
	return ended
}

// TestUnreadRequests: requests that the developer's process does not read are cut until the others hold little, also if they have lost
// their tunnel. One that it reads goes on. Neither side takes a cut request for a whole one.
func TestUnreadRequests(t *testing.T) {
	const streams, room, enough = 5, 2, time.Minute
	process := newLateProcess(t)
	cuts := make(chan int, streams)
	local := &Local{
		Route: "mine", Address: process.Addr().String(), OnDial: func(error) {}, OnCut: func(n int) { cuts <- n },
		TrafficOf: func(string) *Traffic { return &Traffic{} },
	}
	near, far := net.Pipe()
	go tunnel.Serve(t.Context(), near, local.Handler(), tunnel.Far)
	peer, err := tunnel.NewPeer(far, tunnel.Far)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	open := func(line string) *tunnel.Stream {
		t.Helper()
		s, err := peer.Open(t.Context(), tunnel.PathOpen+"mine", nil)
		if err == nil {
			_, err = io.WriteString(s, line)
		}
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	say := func(s *tunnel.Stream, text string) {
		t.Helper()
		if _, err := io.WriteString(s, text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(s, got); err != nil || string(got) != text {
			t.Errorf("the process answers %q, %v; want %q", got, err, text)
		}
	}
	reading := open("echo\n")
	say(reading, "before")
	ended := make(chan error, streams)
	for range streams {
		s := open("late\n")
		go func() { ended <- <-fill(s) }()
	}

	var relief sync.WaitGroup
	defer relief.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	relieve := func(most int) { relief.Go(func() { local.relieve(ctx, most) }) }
	await := func(what string, want int) {
		t.Helper()
		late := time.After(enough)
		for got := 0; got < want; {
			select {
			case n := <-cuts:
				got += n
			case <-late:
				t.Fatalf("%s: %d streams are cut, want %d", what, got, want)
			}
		}
	}
	relieve(room * int(tunnel.Far))
	await("above the bound", streams-room)
	for range streams - room {
		if err := <-ended; err == nil {
			t.Error("a request that was cut has a whole answer")
		}
	}
	cancel()
	relief.Wait()
	if len(cuts) != 0 || len(ended) != 0 {
		t.Errorf("%d are cut, and %d end, within the bound", len(cuts), len(ended))
	}
	say(reading, "after")
	_ = reading.CloseWrite()
	if b, err := io.ReadAll(reading); len(b) != 0 || err != nil {
		t.Errorf("the end of what the process reads: %q, %v", b, err)
	}

	peer.Close()
	for range room {
		if err := <-ended; err == nil {
			t.Error("a request whose tunnel is lost has a whole answer")
		}
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	relieve(0)
	await("after the tunnel is lost", room)
	close(process.late)
	for range streams {
		if err := <-process.ends; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the process sees %v", err)
		}
	}
}
