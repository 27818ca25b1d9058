package tunnel

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
)

// slowCaller sends bytes until its connection is closed, and takes a part of a response when it may.
type slowCaller struct {
	*caller

	may chan struct{}
}

func (c *slowCaller) Write(b []byte) (int, error) {
	<-c.may
	return c.caller.Write(b)
}

// failingWrites is a TCP connection that tells of the first write that fails.
type failingWrites struct {
	*net.TCPConn

	failed chan error
}

func (w *failingWrites) Write(b []byte) (int, error) {
	n, err := w.TCPConn.Write(b)
	if err != nil {
		select {
		case w.failed <- err:
		default:
		}
	}
	return n, err
}

// TestJoinSeesAResetThatAWriteTook: a server that crashes in the middle of its response resets the connection if it has not read all of the
// request. If the write of the request takes the error, the response must not look whole. One that the server has ended before is whole.
func TestJoinSeesAResetThatAWriteTook(t *testing.T) {
	const part = "HTTP/1.0 200 OK\r\n\r\na part"
	for name, whole := range map[string]bool{"a part": false, "whole": true} {
		t.Run(name, func(t *testing.T) {
			listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			near, err := net.DialTCP("tcp", nil, listener.Addr().(*net.TCPAddr))
			if err != nil {
				t.Fatal(err)
			}
			server, err := listener.AcceptTCP()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(server, part)
			if whole {
				_ = server.CloseWrite()
			}
			from, to := &slowCaller{newCaller(), make(chan struct{})}, &failingWrites{near, make(chan error, 1)}
			joined := make(chan error, 1)
			go func() {
				_, _, err := Join(from, to)
				joined <- err
			}()
			_ = server.SetLinger(0)
			_ = server.Close()
			if err := <-to.failed; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				t.Fatalf("the write: %v", err)
			}
			close(from.may)
			err = <-joined
			if from.got.String() != part || from.ended != whole || err == nil {
				t.Errorf("the caller gets %q, ended %t, error %v; want all that came, ended %t, and the error of the write", from.got.String(), from.ended, err, whole)
			}
		})
	}
}
