package carrier

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestCutResponseOfAnEndingCarrier ends the carrier while apps send. A response without a length, and a protocol other than HTTP, must not
// look whole to their peers. A response that is whole must.
func TestCutResponseOfAnEndingCarrier(t *testing.T) {
	const untilClose = "HTTP/1.0 200 OK\r\n\r\nhalf"
	for name, tt := range map[string]struct {
		send, app string
		reset     bool
	}{
		"until close":            {get, untilClose, true},
		"no HTTP":                {"SELECT 1\r\n", "1\r\n", true},
		"whole, and then closed": {request("GET /", "Connection: close"), fromApp, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := scripted(&recorder{}, []answer{{after: "\r\n", send: tt.app}, {after: "never"}})
			f := start(t, app, nil, byUser("alice", "alice"))
			c := f.dial(t)
			_, _ = io.WriteString(c, tt.send)
			back := make([]byte, len(tt.app))
			if _, err := io.ReadFull(c, back); err != nil {
				t.Fatal(err)
			}
			go func() { _ = f.end() }()
			if rest, reset := readAll(c); rest != "" || reset != tt.reset {
				t.Errorf("after %q comes %q, reset %t", back, rest, reset)
			}
		})
	}
}

// TestCutUploadOfAnEndingCarrier ends the carrier while an app reads, which has ended its own direction. A part of an upload must not look
// whole to it.
func TestCutUploadOfAnEndingCarrier(t *testing.T) {
	const upload = "SELECT 1\r\n"
	ended, cut := make(chan struct{}), make(chan bool, 1)
	app := func(d duplex) {
		_, _ = io.ReadFull(d, make([]byte, len(upload)))
		_ = d.CloseWrite()
		close(ended)
		_, reset := readAll(d.(*net.TCPConn))
		cut <- reset
	}
	f := start(t, app, nil, byUser("alice", "alice"))
	c := f.dial(t)
	_, _ = io.WriteString(c, upload)
	<-ended
	if rest, reset := readAll(c); rest != "" || reset {
		t.Fatalf("the app's end is not passed on: %q, reset %t", rest, reset)
	}
	go func() { _ = f.end() }()
	if !<-cut {
		t.Error("the app gets a regular end")
	}
}

// TestWholeAnswerOfAnEndingCarrier ends the carrier while a caller has not read all of an answer that the app has ended.
func TestWholeAnswerOfAnEndingCarrier(t *testing.T) {
	const upload, size = "SELECT 1\r\n", 512 << 10 // more than the caller's socket takes
	ended := make(chan struct{})
	app := func(d duplex) {
		_, _ = io.ReadFull(d, make([]byte, len(upload)))
		_, _ = d.Write(make([]byte, size))
		_ = d.CloseWrite()
		close(ended)
		_, _ = io.Copy(io.Discard, d)
	}
	f := start(t, app, nil, byUser("alice", "alice"))
	c := f.dial(t)
	_ = c.SetReadBuffer(64 << 10)
	_, _ = io.WriteString(c, upload)
	<-ended
	time.Sleep(200 * time.Millisecond) // the carrier passes the end on
	_ = f.end()
	if answer, reset := readAll(c); len(answer) != size || reset {
		t.Errorf("%d of %d bytes come, reset %t", len(answer), size, reset)
	}
}

// TestResponseOfAnAppThatFailed resets the app's connection while the peer takes nothing, and has ended its direction. What the app sent
// before must not look whole.
func TestResponseOfAnAppThatFailed(t *testing.T) {
	const head = "HTTP/1.0 200 OK\r\n\r\n"
	failed := make(chan struct{})
	app := func(d duplex) {
		tcp := d.(*net.TCPConn)
		_, _ = tcp.Read(make([]byte, 1024))
		_, _ = io.WriteString(tcp, head)
		_ = tcp.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)) // by then all buffers are full
		_, _ = tcp.Write(make([]byte, 64<<20))
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
		close(failed)
	}
	f := start(t, app, nil, byUser("alice", "alice"))
	c := f.dial(t)
	_, _ = io.WriteString(c, get)
	<-failed
	_ = c.CloseWrite()
	time.Sleep(100 * time.Millisecond) // until the carrier has seen the end
	if back, reset := readAll(c); !reset || !strings.HasPrefix(back, head) {
		t.Errorf("%d bytes of the response come back, reset %t", len(back), reset)
	}
	await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
}
