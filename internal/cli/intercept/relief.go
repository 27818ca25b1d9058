package intercept

import (
	"context"
	"net"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/memory"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// maxUnread in bytes is what this process holds at most for a developer's process that does not read. It has room for 128 streams.
const maxUnread = 256 << 20

// held is a stream that is joined with a connection to the developer's process. What that does not read piles up in this process, up to
// tunnel.Far. So it does after the stream has lost its other side.
type held struct {
	tunnel.Duplex

	flow  memory.Flow
	to    *net.TCPConn
	local *Local
}

// hold lets Relieve cut a stream until it is closed.
func (l *Local) hold(stream tunnel.Duplex, to *net.TCPConn) *held {
	h := &held{Duplex: stream, to: to, local: l}
	h.flow.Begin(time.Now())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[*held]struct{}{}
	}
	l.held[h] = struct{}{}
	return h
}

// Read implements io.Reader.
func (h *held) Read(b []byte) (int, error) { return h.flow.Read(h.Duplex, b) }

// Close implements io.Closer. It frees what was not read.
func (h *held) Close() error {
	h.local.mu.Lock()
	delete(h.local.held, h)
	h.local.mu.Unlock()
	return h.Duplex.Close()
}

// cut ends the connection to the developer's process, which must not take what it has got for the whole. That ends the stream, too.
func (h *held) cut() {
	_ = h.to.SetLinger(0) // an error means that it is closed
	_ = h.to.Close()
}

// Relieve cuts streams that the developer's process does not read, the slowest first, so that all hold 256 MiB at most. It returns when
// ctx ends. Without it, callers can fill the memory of the developer's machine.
func (l *Local) Relieve(ctx context.Context) { l.relieve(ctx, maxUnread) }

func (l *Local) relieve(ctx context.Context, most int) {
	memory.Check(ctx, func(now time.Time) {
		if n := l.relieveAt(now, most); n > 0 {
			l.OnCut(n)
		}
	})
}

// relieveAt cuts streams until those that wait hold most bytes at most. It returns how many it has cut.
func (l *Local) relieveAt(now time.Time, most int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var waiting []memory.Waiter[*held]
	for h := range l.held {
		w := memory.Waiter[*held]{Of: h, Holds: int(tunnel.Far), Moved: h.flow.Moved(), Waits: h.flow.Waits(now)}
		if w.Waits > memory.CheckInterval {
			waiting = append(waiting, w)
		}
	}
	worst := memory.Worst(waiting, len(waiting)*int(tunnel.Far)-most)
	for _, h := range worst {
		h.cut()
		delete(l.held, h) // it counts once, although it may take longer than until the next check to end
	}
	return len(worst)
}
