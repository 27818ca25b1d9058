package intercept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sonde-operator/sonde/internal/cli/intercept"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/bench/figures"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// streamsEach are the streams of a client that are used and then left open.
const streamsEach = 16

// growth in bytes is what pings may leave as garbage until the next collection.
const growth = 1 << 20

// hold measures the memory of a Stowaway with many clients. Each has streams that were used and stay open, and one whose
// answer is never read, as in TestMemory of agents/stowaway.
func hold(ctx context.Context, b *host.Env, o *Sizes) (figures.Held, error) {
	out := figures.Held{Clients: o.Clients, Streams: streamsEach + 1}
	w := &world{b: b}
	defer w.close()
	stowaway, err := w.startStowaway(ctx)
	if err != nil {
		return out, err
	}
	pem, err := w.manager.MarshalPEM()
	if err != nil {
		return out, err
	}
	if _, err := w.run(ctx, "", b.Net.Target, "crowd", &settings{Identity: pem, Peer: w.stowaway, Clients: o.Clients}); err != nil {
		return out, err
	}
	grew, before := time.Now(), int64(0)
	err = host.Await(ctx, "Stowaway's memory hardly grows", func() (bool, error) {
		m, err := host.ProcessMemory(stowaway.cmd.Process.Pid)
		if out.Memory = m.Peak; out.Memory > before+growth {
			before, grew = out.Memory, time.Now()
		}
		return time.Since(grew) > o.Still, err
	})
	return out, err
}

// errGone ends the crowd.
var errGone = errors.New("the connection to Stowaway has ended")

// runCrowd is the manager, all clients and a carrier of one Stowaway. It is ready when the streams are in use.
func runCrowd(ctx context.Context, s *settings) error {
	id, err := tunnel.ParseIdentity(s.Identity)
	if err != nil {
		return err
	}
	d := (&net.Dialer{}).DialContext
	m, err := newManager(ctx, d, id, s.Peer)
	if err != nil {
		return err
	}
	own, err := tunnel.NewIdentity()
	if err != nil {
		return err
	}
	if err := connectClients(ctx, m, own.Key, s); err != nil {
		return err
	}
	carrier, err := connect(ctx, d, own, s.Peer)
	if err != nil {
		return err
	}
	var all errgroup.Group
	for i := range s.Clients {
		path := fmt.Sprint(tunnel.PathOpen, routeID, i)
		for range streamsEach {
			all.Go(func() error { return use(ctx, carrier, path) })
		}
		all.Go(func() error { return fill(ctx, carrier, path) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	fmt.Println(host.Ready)
	<-carrier.Gone()
	return errGone
}

// connectClients connects clients that send back what they get.
func connectClients(ctx context.Context, m *manager, carrier tunnel.PublicKey, s *settings) error {
	echo := http.NewServeMux()
	echo.HandleFunc("POST "+tunnel.PathOpen+"{id}", func(w http.ResponseWriter, r *http.Request) {
		if s, err := tunnel.Accept(w, r); err == nil {
			_, _ = io.Copy(s, s)
		}
	})
	routes, tunnels := make([]tunnel.Route, s.Clients), make([]*intercept.Tunnel, s.Clients)
	for i := range routes {
		id, err := tunnel.NewIdentity()
		if err != nil {
			return err
		}
		routes[i] = route(fmt.Sprint(routeID, i), id.Key, nil)
		if tunnels[i], err = newTunnel(id, s.Peer, stowawayURL, echo, func(error) {}); err != nil {
			return err
		}
	}
	if err := m.send(ctx, carrier, routes...); err != nil {
		return err
	}
	for _, t := range tunnels {
		go func() { _ = t.Run(ctx) }()
	}
	return m.await(ctx, "all clients are connected", func(s *tunnel.Status) bool {
		return !slices.ContainsFunc(routes, func(r tunnel.Route) bool { return !s.Routes[r.ID].Connected })
	})
}

// data is what goes there and back on each stream.
var data = bytes.Repeat([]byte("x"), 64<<10)

// use uses a stream. It ends with the carrier.
func use(ctx context.Context, carrier *tunnel.Peer, path string) error {
	s, err := carrier.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	go func() { _, _ = s.Write(data) }()
	if n, err := io.CopyN(io.Discard, s, int64(len(data))); err != nil {
		return fmt.Errorf("read %d bytes back: %w", n, err)
	}
	return nil
}

// fill writes to a stream until it ends, and reads nothing of what comes back.
func fill(ctx context.Context, carrier *tunnel.Peer, path string) error {
	s, err := carrier.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	go func() {
		for err := error(nil); err == nil; {
			_, err = s.Write(data)
		}
	}()
	return nil
}
