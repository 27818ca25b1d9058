package intercept

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Pauses between two tries to connect: the first, doubled after each failure up to the second.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 2 * time.Second
)

// Tunnel keeps the connection to Stowaway.
type Tunnel struct {
	Identity *tunnel.Identity
	Dial     func(ctx context.Context, stowaway tunnel.PublicKey) (net.Conn, error)
	// Key returns Stowaway's key. A new Stowaway may have another one.
	Key     func() tunnel.PublicKey
	Handler http.Handler
	// OnChange is called with nil when the tunnel is connected, and with the reason when it is not.
	OnChange func(error)
}

// Reasons after a connection that had been good, and after one that ended at once.
var (
	errLost     = errors.New("the connection to the cluster was lost")
	errNotKnown = errors.New("the cluster's end of the tunnel does not know this intercept yet")
)

// settled is how long a connection must last to have been good: Stowaway refuses a key after the client's part of the handshake.
const settled = time.Second

// MaxRefusals in a row are believed. One may be temporary: an API server that has just started may not know all rights, and a plugin for
// credentials may replace an expired token only after it was refused.
const MaxRefusals = 3

// Run connects again and again until ctx ends, or more tries would be refused, too. Then it returns the refusal.
func (t *Tunnel) Run(ctx context.Context) error {
	pause, refusals := firstPause, 0
	for {
		conn, err := t.Dial(ctx, t.Key())
		if err == nil {
			t.OnChange(nil)
			began := time.Now()
			tunnel.Serve(ctx, conn, t.Handler, tunnel.Far)
			_ = conn.Close()
			err = errNotKnown
			if time.Since(began) > settled {
				err, pause = errLost, firstPause
			}
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end was asked for
		}
		if refused, ok := errors.AsType[*ProxyError](err); ok && refused.Denied() {
			refusals++
		} else {
			refusals = 0
		}
		if refusals == MaxRefusals {
			return err
		}
		t.OnChange(err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		pause = min(2*pause, lastPause)
	}
}
