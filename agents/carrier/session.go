package carrier

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

const (
	dialTimeout = 5 * time.Second
	// Pauses between two sessions double up to maxPause. Half of each is random.
	minPause, maxPause = 100 * time.Millisecond, 4 * time.Second
	// openTimeout of a stream; after it the app gets the request.
	openTimeout = 3 * time.Second
	// reportInterval of reports while something changes.
	reportInterval = time.Second
	// maxTable in bytes of one line with routes.
	maxTable = 16 << 20
	// maxReason in bytes is what the log has of why a session ended. HTTP/2 lets Stowaway say it.
	maxReason = 1 << 10
)

// errNoSession: Stowaway is not connected.
var errNoSession = errors.New("no session with Stowaway")

// follow keeps a session with Stowaway until ctx ends.
func (c *Carrier) follow(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		useful, err := c.session(ctx)
		c.setRouting(c.routing.Load().withLive(nil))
		if ctx.Err() != nil {
			return
		}
		if useful {
			pause = minPause
		}
		wait := pause/2 + rand.N(pause/2) //nolint:gosec // jitter
		c.cfg.Log.Info("Reconnecting to Stowaway", "after", wait.String(), "error", text.OneLine(fmt.Sprint(err), maxReason))
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		pause = min(2*pause, maxPause)
	}
}

// session connects once and follows the table until the connection ends. It reports whether it got a table.
func (c *Carrier) session(ctx context.Context) (useful bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", c.cfg.Stowaway)
	if err != nil {
		return false, fmt.Errorf("dial Stowaway: %w", err)
	}
	secure := tls.Client(conn, c.cfg.Identity.ClientTLS(c.cfg.StowawayKey))
	if err := tunnel.Handshake(ctx, secure); err != nil {
		return false, err
	}
	peer, err := tunnel.NewPeer(secure, tunnel.Near)
	if err != nil {
		return false, errors.Join(err, secure.Close())
	}
	defer peer.Close()
	c.peer.Store(peer)
	defer c.peer.CompareAndSwap(peer, nil)
	reported := make(chan error, 1)
	go func() {
		defer peer.Close() // a session that cannot report begins anew
		reported <- c.report(ctx, peer)
	}()
	useful, err = c.readTables(ctx, peer)
	c.peer.CompareAndSwap(peer, nil)
	cancel()
	peer.Close()
	return useful, errors.Join(err, <-reported)
}

func (c *Carrier) readTables(ctx context.Context, peer *tunnel.Peer) (useful bool, err error) {
	request, err := tunnel.NewRequest(ctx, http.MethodGet, tunnel.PathRoutes, nil)
	if err != nil {
		return false, err
	}
	request.Header.Set(tunnel.HeaderLive, "true")
	response, err := peer.Do(request)
	if err != nil {
		return false, fmt.Errorf("ask for routes: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, fmt.Errorf("ask for routes: status %s", response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxTable)
	for lines.Scan() {
		var t tunnel.Table
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil {
			return useful, fmt.Errorf("read routes: %w", err)
		}
		if t.Version > tunnel.Version {
			return useful, fmt.Errorf("read routes: version %d, known are 1 to %d", t.Version, tunnel.Version)
		}
		useful = true
		if t.Live != nil {
			c.setRouting(c.routing.Load().withLive(*t.Live))
			continue
		}
		c.setRouting(compile(c.ctx, &t, c.routing.Load(), c.cfg.Log))
	}
	return useful, fmt.Errorf("read routes: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// setRouting publishes the routes, and tells the steerer.
func (c *Carrier) setRouting(r *routing) {
	c.routing.Store(r)
	c.kickSteerer()
}

// report writes a Report at once, and then each second in which something has changed.
func (c *Carrier) report(ctx context.Context, peer *tunnel.Peer) error {
	body, out := io.Pipe()
	request, err := tunnel.NewRequest(ctx, http.MethodPost, tunnel.PathReport, body)
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() {
		response, err := peer.Do(request)
		if err == nil {
			if response.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %s", response.Status)
			}
			_, _ = io.Copy(io.Discard, response.Body) // until Stowaway ends the reports
			_ = response.Body.Close()
		}
		_ = body.CloseWithError(errNoSession)
		answered <- err
	}()
	err = c.writeReports(ctx, json.NewEncoder(out))
	_ = out.CloseWithError(errNoSession)
	if err = errors.Join(err, <-answered); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func (c *Carrier) writeReports(ctx context.Context, to *json.Encoder) error {
	ticker := time.NewTicker(reportInterval)
	defer ticker.Stop()
	var last tunnel.Report
	for first := true; ; first = false {
		next := c.newReport()
		if first || len(next.Requests) > 0 || !maps.Equal(next.Routes, last.Routes) ||
			!slices.Equal(next.Steered, last.Steered) || !slices.Equal(next.Unserved, last.Unserved) {
			if err := to.Encode(next); err != nil {
				return err
			}
			last = next
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (c *Carrier) newReport() tunnel.Report {
	r := tunnel.Report{Pod: c.cfg.PodUID, Routes: map[string]tunnel.Counters{}, Requests: c.history.take()}
	r.Steered, r.Unserved = c.steerer.ports()
	for id, route := range c.routing.Load().byID {
		r.Routes[id] = route.load()
	}
	return r
}

// clientStream ends with its route.
type clientStream struct {
	*tunnel.Stream
	// forget ends the waiting for the route's end.
	forget func() bool
	cancel context.CancelCauseFunc
}

// Close ends both directions.
func (s clientStream) Close() error {
	s.forget()
	err := s.Stream.Close()
	s.cancel(nil)
	return err
}

// open opens a stream to a route's client.
func (c *Carrier) open(r *route, peer, destination net.Addr) (duplex, error) {
	session := c.peer.Load()
	if session == nil {
		return nil, errNoSession
	}
	// The context is the stream's, too, so the time is bounded by a timer that must be stopped.
	ctx, cancel := context.WithCancelCause(r.ctx)
	timer := time.AfterFunc(openTimeout, func() { cancel(context.DeadlineExceeded) })
	header := http.Header{}
	header.Set(tunnel.HeaderPod, c.cfg.Pod)
	header.Set(tunnel.HeaderPeer, peer.String())
	header.Set(tunnel.HeaderDestination, destination.String())
	stream, err := session.Open(ctx, tunnel.PathOpen+r.id, header)
	if err != nil {
		timer.Stop()
		cancel(err)
		return nil, err
	}
	// HTTP/2 does not look at a request's context while it waits for more of the body.
	forget := context.AfterFunc(r.ctx, func() { _ = stream.Close() })
	opened := clientStream{stream, forget, cancel}
	if !timer.Stop() {
		return nil, errors.Join(context.DeadlineExceeded, opened.Close())
	}
	return opened, nil
}
