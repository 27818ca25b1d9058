package tunnel

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// oneRecord is a number of bytes that TLS puts into one record. A record has up to 16 KiB, but those of a new connection are shorter than
// a packet.
const oneRecord = 1 << 10

// batch is the connection below TLS. TLS makes a write, and so a system call, of each record. batch holds the records of one write
// above TLS, and makes one write of them.
type batch struct {
	net.Conn

	mu      sync.Mutex
	holding *[]byte // nil if no write above TLS is going on
}

// Batch returns a connection for TLS, above which Serve sends with few system calls.
func Batch(conn net.Conn) net.Conn { return &batch{Conn: conn} }

var held = sync.Pool{New: func() any { return new([]byte) }}

// Write implements net.Conn. Alerts and updates of keys may come while records are held, and keep their place.
func (b *batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holding == nil {
		return b.Conn.Write(p)
	}
	*b.holding = append(*b.holding, p...)
	return len(p), nil
}

func (b *batch) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holding = held.Get().(*[]byte)
}

// send sends what is held.
func (b *batch) send() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.holding
	b.holding = nil
	defer func() {
		*all = (*all)[:0]
		held.Put(all)
	}()
	for rest := *all; ; {
		n, err := b.Conn.Write(rest)
		rest = rest[n:]
		// A slow network may take a part of it in that time. It has failed only if it took nothing.
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if err := b.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil { //nolint:forbidigo // deadlines are in real time
			return err
		}
	}
}

// batched is a TLS connection above a batch. Its writes come one after the other.
type batched struct {
	prompt

	below *batch
}

// withBatch returns conn. If it is a TLS connection, its Close does not wait, and its writes make one system call each if the connection
// below is of Batch.
func withBatch(conn net.Conn) net.Conn {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return conn
	}
	if below, ok := secure.NetConn().(*batch); ok {
		return &batched{prompt: prompt{secure}, below: below}
	}
	return prompt{secure}
}

// Write implements net.Conn. After an error the connection is of no use: a part of a record may have been sent.
func (b *batched) Write(p []byte) (int, error) {
	if len(p) <= oneRecord {
		return b.Conn.Write(p)
	}
	b.below.hold()
	n, err := b.Conn.Write(p)
	if serr := b.below.send(); serr != nil {
		return 0, serr
	}
	return n, err
}
