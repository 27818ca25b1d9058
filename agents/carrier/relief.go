package carrier

import (
	"context"
	"runtime"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/memory"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// relieve leaves new connections to the app and ends slow ones while memory is short, until ctx ends. The kernel would kill the
// carrier, and end them all.
func (c *Carrier) relieve(ctx context.Context) {
	memory.Check(ctx, func(now time.Time) { c.relieveAt(now, c.excess()) })
}

func (c *Carrier) relieveAt(now time.Time, excess int) {
	var holds [sides]int
	var holding []*conn
	if !now.Before(c.measureAt) {
		holds, holding, c.crowded = c.crowding(int(c.sockets.Load()))
		c.measureAt = now.Add(memory.CheckInterval * time.Duration(len(c.all())/measuredAtOnce))
	}
	short := excess > 0 || c.crowded
	was := c.short.Swap(short)
	worst := memory.Worst(c.waiting(now), excess)
	switch {
	case !short && was:
		c.cfg.Log.Info("Memory is not short any more")
		c.maybeRoom(len(c.all()))
	case short && c.steerer.setFull(true):
		c.cfg.Log.Warn("Memory is short; the app gets new connections", "heap", excess > 0, "sockets", c.crowded)
		c.kickSteerer()
	}
	if len(holding) > 0 {
		c.cfg.Log.Warn("Ending connections that are slow, because their sockets hold too much memory",
			"connections", len(holding), "acceptedBytes", holds[sideAccepted], "appBytes", holds[sideApp])
		for _, one := range holding {
			one.end()
		}
	}
	if len(worst) > 0 {
		c.cfg.Log.Warn("Ending connections that are not read, because memory is short", "connections", len(worst))
		for _, one := range worst {
			one.close(true)
		}
		runtime.GC()
	}
}

// waiting returns the connections that may hold unread bytes of a client, of the peer that has the most of them.
func (c *Carrier) waiting(now time.Time) []memory.Waiter[*conn] {
	byPeer := map[string][]memory.Waiter[*conn]{}
	most := ""
	for _, one := range c.all() {
		one.mu.Lock()
		up, closed := one.client, one.closed
		one.mu.Unlock()
		if up == nil || closed { // a closed one holds nothing of its client, and would take the place of one whose end frees memory
			continue
		}
		w := memory.Waiter[*conn]{Of: one, Holds: int(tunnel.Near), Moved: up.flow.Moved(), Waits: up.flow.Waits(now)}
		if w.Waits <= memory.CheckInterval {
			continue
		}
		peer := one.peer()
		byPeer[peer] = append(byPeer[peer], w)
		if len(byPeer[peer]) > len(byPeer[most]) {
			most = peer
		}
	}
	return byPeer[most]
}
