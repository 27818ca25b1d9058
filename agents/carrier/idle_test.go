package carrier

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestIdle checks that a carrier without a route ends by itself, and one with a route does not.
func TestIdle(t *testing.T) {
	const idle = 200 * time.Millisecond
	f := start(t, nil, nil, byUser("alice", "alice"))
	busy := *f.cfg
	busy.IdleAfter = idle
	c := &Carrier{cfg: &busy, pod: f.pod}
	c.peer.Store(f.peer.Load())
	c.routing.Store(f.routing.Load())
	ctx, cancel := context.WithTimeout(t.Context(), 3*idle)
	defer cancel()
	if err := c.wait(ctx); err != nil {
		t.Errorf("a carrier with a route ends: %v", err)
	}
	alone := newCarrier(&Config{IdleAfter: idle, Log: slog.New(slog.DiscardHandler)}, f.pod)
	if err := alone.wait(t.Context()); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("a carrier without a route ends with %v", err)
	}
}
