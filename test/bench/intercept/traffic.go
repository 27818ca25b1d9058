package intercept

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// buffer of the source and the sink, in bytes of a read or a write.
const buffer = 256 << 10

// serveTCP serves each connection and closes it.
func serveTCP(ctx context.Context, address string, serve func(*net.TCPConn)) error {
	l, err := listen(ctx, address)
	if err != nil {
		return err
	}
	fmt.Println(host.Ready)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			serve(c.(*net.TCPConn))
		}()
	}
}

// runSource is the developer's process: it answers a request with many bytes.
func runSource(ctx context.Context, s *settings) error {
	return serveTCP(ctx, ":"+sourcePort, func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", s.Bytes)
		b := make([]byte, buffer)
		for left := s.Bytes; left > 0 && err == nil; left -= buffer {
			_, err = c.Write(b[:min(left, buffer)])
		}
		if err == nil {
			_, _ = c.Read(b) // until the sink has everything
		}
	})
}

// received is the report of a sink.
type received struct {
	Bytes int64         `json:"bytes"`
	Wall  time.Duration `json:"wall"` // from the first to the last byte
}

// runSink is the caller of the Pod: it sends a request and drops the answer's body.
func runSink(ctx context.Context, s *settings) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", s.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	defer r.Body.Close()
	began := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, make([]byte, buffer))
	if err != nil {
		return fmt.Errorf("read the stream after %d bytes: %w", n, err)
	}
	return json.NewEncoder(os.Stdout).Encode(received{Bytes: n, Wall: time.Since(began)})
}

// request is what the callers of the Pod send. No route's match matches it.
var request = "GET /x HTTP/1.1\r\nHost: web\r\nUser-Agent: bench\r\nX-A: " + strings.Repeat("a", 200) + "\r\n\r\n"

// runApp answers each head with the same bytes, as cheaply as a program can.
func runApp(ctx context.Context, _ *settings) error {
	const answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
	return serveTCP(ctx, appAddress, func(c *net.TCPConn) {
		for r := bufio.NewReader(c); ; {
			line, err := r.ReadSlice('\n')
			if err == nil && len(line) == len("\r\n") {
				_, err = io.WriteString(c, answer)
			}
			if err != nil {
				return
			}
		}
	})
}

// runSplicer is the plain proxy that the carrier is compared with. The kernel copies.
func runSplicer(ctx context.Context, _ *settings) error {
	return serveTCP(ctx, splicer, func(down *net.TCPConn) {
		up, err := (&net.Dialer{}).DialContext(ctx, "tcp4", appAddress)
		if err != nil {
			return
		}
		defer up.Close()
		go func() {
			_, _ = io.Copy(down, up)
			_ = down.Close()
		}()
		_, _ = io.Copy(up, down)
	})
}

// runCaller sends keep-alive requests to the app, the splice proxy and the carrier in turns, so that all three see the
// same machine.
func runCaller(ctx context.Context, s *settings) error {
	var conns [3]net.Conn
	var answers [3]*bufio.Reader
	var took [3][]time.Duration
	for i, address := range []string{appAddress, splicer, podAddress} {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
		if err != nil {
			return err
		}
		defer c.Close()
		conns[i], answers[i] = c, bufio.NewReader(c)
	}
	for range s.Requests {
		for i := range conns {
			began := time.Now()
			if err := exchange(conns[i], answers[i]); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	half := s.Requests / 2
	return json.NewEncoder(os.Stdout).Encode(figures.Forwarded{Requests: s.Requests, Direct: took[0][half], Splice: took[1][half], Carrier: took[2][half]})
}

func exchange(c net.Conn, answers *bufio.Reader) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	r, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r.Body)
	if r.StatusCode != http.StatusOK {
		err = fmt.Errorf("the app answered %s", r.Status)
	}
	return errors.Join(err, r.Body.Close())
}
