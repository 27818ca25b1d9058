package carrier

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/memory"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

type duplex = tunnel.Duplex

// upstream is the app or a client, as one connection uses it.
type upstream struct {
	duplex
	// tcp is the connection to the app; nil for a client.
	tcp *net.TCPConn
	// route of a client; nil for the app.
	route *route
	// flow of a client's bytes. What the peer does not take piles up in this process, up to tunnel.Near.
	flow memory.Flow
	// ended: nothing more can be read; endedBy is why. held are bytes of a head that is not complete, if it ended while a request was being
	// sent. detached: the conn uses it no more. The conn's mu guards them.
	ended    bool
	endedBy  error
	held     []byte
	detached bool
	// got is the number of bytes that were read of the app. Of the goroutine that reads.
	got uint64
}

func (u *upstream) app() bool { return u.route == nil }

// endError returns the error of a read that has ended, which a write may have taken.
func (u *upstream) endError(err error) error {
	if errors.Is(err, io.EOF) && u.tcp != nil && tunnel.CutAfter(u.tcp, u.got) {
		return syscall.ECONNRESET
	}
	return err
}

// Close ends both directions. To the app it looks like a regular end.
func (u *upstream) Close() error {
	if u.tcp != nil {
		endOnClose(u.tcp)
	}
	return u.duplex.Close()
}

// abort closes an upstream. The app's connection is reset.
func (u *upstream) abort() error { return u.duplex.Close() }

// leave ends the connection to an upstream that has got all that there is for it. A client has to end its direction, too: Close alone would
// reset the stream, and with it the connection of the developer's process.
func (u *upstream) leave() {
	if u.app() {
		_ = u.Close()
		return
	}
	_ = u.CloseWrite() // fails if the stream has ended
	time.AfterFunc(lingerTime, func() { _ = u.Close() })
}

// stopped ends a client's stream at once if the client goes on, as TCP does for a peer that has gone. No one reads what it sends, so that
// would fill a window of memory that relieve does not know. The conn has left the stream or has closed it, so that the stream ends soon.
func (u *upstream) stopped(rest *buffer) {
	if !u.app() && (rest.len() > 0 || rest.fill(u) == nil) {
		_ = u.Close()
	}
}

func (u *upstream) Read(b []byte) (int, error) {
	if u.route == nil {
		n, err := u.duplex.Read(b)
		u.got += uint64(n)
		return n, err
	}
	n, err := u.flow.Read(u.duplex, b)
	u.route.fromClient.Add(uint64(n))
	return n, err
}

func (u *upstream) Write(b []byte) (int, error) {
	n, err := u.duplex.Write(b)
	if u.route != nil && n > 0 {
		u.route.toClient.Add(uint64(n))
	}
	return n, err
}

// copyAll copies until the source ends. The kernel copies between two TCP connections.
func copyAll(to io.Writer, from io.Reader) error {
	if u, ok := to.(*upstream); ok && u.tcp != nil {
		to = u.tcp
	}
	var source *net.TCPConn
	var read *uint64
	switch f := from.(type) {
	case *upstream:
		source, read = f.tcp, &f.got
	case *conn:
		source, read = f.down, &f.sent
	}
	if _, inKernel := to.(*net.TCPConn); source != nil && inKernel {
		n, err := io.Copy(to, source)
		*read += uint64(n)
		return err
	}
	var b buffer
	defer b.free()
	for {
		if err := b.fill(from); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := to.Write(b.bytes()); err != nil {
			return err
		}
		b.skip(b.len())
		b.grow()
	}
}

// splice copies n bytes between two TCP connections in the kernel. It returns io.ErrUnexpectedEOF if the source has fewer.
func splice(to, from *net.TCPConn, n int64) (int64, error) {
	copied, err := to.ReadFrom(&io.LimitedReader{R: from, N: n})
	if err == nil && copied < n {
		err = io.ErrUnexpectedEOF
	}
	return copied, err
}
