package carrier

import (
	"cmp"
	"context"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/agents/memory"
)

// relieve leaves new connections to the app and ends slow ones while memory is short, until ctx ends. The kernel would kill the
// carrier, and end them all.
func (c *Carrier) relieve(ctx context.Context) {
	ticker := time.NewTicker(memory.CheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			c.relieveAt(now, memory.Short())
		}
	}
}

func (c *Carrier) relieveAt(now time.Time, short bool) {
	was := c.short.Swap(short)
	slow := c.slow(now)
	switch {
	case !short && was:
		c.cfg.Log.Info("Memory is not short any more")
		c.maybeRoom(len(c.all()))
	case !short:
	default:
		if c.steerer.setFull(true) {
			c.cfg.Log.Warn("Memory is short; the app gets new connections")
			c.kickSteerer()
		}
		for _, one := range slow {
			one.close(true)
		}
		if len(slow) > 0 {
			c.cfg.Log.Warn("Ending connections that are not read, because memory is short", "connections", len(slow))
			runtime.GC()
		}
	}
}

// slow returns a part of the connections that may hold unread bytes of a client: a quarter of those of the peer that has the most, the
// slowest first.
func (c *Carrier) slow(now time.Time) []*conn {
	type waiting struct {
		conn  *conn
		moved int64
	}
	byPeer := map[string][]waiting{}
	most := ""
	for _, one := range c.all() {
		one.mu.Lock()
		up := one.client
		one.mu.Unlock()
		if up == nil {
			continue
		}
		moved := up.flow.Moved()
		if !up.flow.Waits(now, memory.CheckInterval) {
			continue
		}
		peer, _, _ := net.SplitHostPort(one.down.RemoteAddr().String())
		byPeer[peer] = append(byPeer[peer], waiting{one, moved})
		if len(byPeer[peer]) > len(byPeer[most]) {
			most = peer
		}
	}
	all := byPeer[most]
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Compare(a.moved, b.moved) })
	var conns []*conn
	for _, w := range all[:(len(all)+3)/4] {
		conns = append(conns, w.conn)
	}
	return conns
}
