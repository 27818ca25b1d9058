package carrier

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// counters of a route; tunnel.Counters says what they count.
type counters struct {
	connections, matched, passed, failed, overlaps, toClient, fromClient atomic.Uint64
}

func (c *counters) load() tunnel.Counters {
	return tunnel.Counters{
		Connections: c.connections.Load(), Matched: c.matched.Load(), Passed: c.passed.Load(), Failed: c.failed.Load(),
		BytesToClient: c.toClient.Load(), BytesFromClient: c.fromClient.Load(), Overlaps: c.overlaps.Load(),
	}
}

// maxPath in bytes of a path in the list of requests.
const maxPath = 256

// history keeps the last requests of clients until they are reported.
type history struct {
	mu   sync.Mutex
	ring [tunnel.MaxRequests]tunnel.Request
	// n requests since the last report.
	n int
}

// add numbers a request of a route, so that its client notices those that the ring has lost.
func (h *history) add(to *route, r tunnel.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	to.recorded++
	r.Time, r.Number = time.Now(), to.recorded
	h.ring[h.n%len(h.ring)] = r
	h.n++
}

// take returns the requests since the last call, the newest last.
func (h *history) take() []tunnel.Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []tunnel.Request
	for i := max(0, h.n-len(h.ring)); i < h.n; i++ {
		all = append(all, h.ring[i%len(h.ring)])
	}
	h.n = 0
	return all
}
