package intercept

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Names in the State that the manager sends.
const (
	routeID = "bench"
	podUID  = host.PodUID
	podName = "bench/web-0"
)

// manager is the manager's side of the connection to Stowaway.
type manager struct {
	peer *tunnel.Peer
	sent int // States
}

// dial connects in some namespace.
type dial func(ctx context.Context, network, address string) (net.Conn, error)

// connect connects the manager or a carrier to Stowaway.
func connect(ctx context.Context, d dial, id *tunnel.Identity, stowaway tunnel.PublicKey) (*tunnel.Peer, error) {
	c, err := d(ctx, "tcp4", net.JoinHostPort(host.TargetIP, peerPort))
	if err != nil {
		return nil, err
	}
	secure := tls.Client(c, id.ClientTLS(stowaway))
	if err := tunnel.Handshake(ctx, secure); err != nil {
		return nil, err
	}
	return tunnel.NewPeer(secure, tunnel.Near)
}

func newManager(ctx context.Context, d dial, id *tunnel.Identity, stowaway tunnel.PublicKey) (*manager, error) {
	p, err := connect(ctx, d, id, stowaway)
	return &manager{peer: p}, err
}

func (m *manager) close() { m.peer.Close() }

// route returns a route of a client to the Pod.
func route(id string, client tunnel.PublicKey, match *httpmatch.Match) tunnel.Route {
	return tunnel.Route{ID: id, Name: "bench/" + id, ClientKey: client, Port: podPort, Match: match, GracePeriod: time.Minute, Pods: []string{podUID}}
}

// send sends a State with one carrier.
func (m *manager) send(ctx context.Context, carrier tunnel.PublicKey, routes ...tunnel.Route) error {
	m.sent++
	b, err := json.Marshal(tunnel.State{
		Version: tunnel.Version, Generation: fmt.Sprint(m.sent), Routes: routes,
		Carriers: []tunnel.Carrier{{Pod: podUID, Name: podName, Key: carrier}},
	})
	if err != nil {
		return err
	}
	return m.ask(ctx, http.MethodPut, tunnel.PathState, b, nil)
}

// ask sends a request and decodes the answer.
func (m *manager) ask(ctx context.Context, method, path string, body []byte, answer any) error {
	r, err := tunnel.NewRequest(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := m.peer.Do(r)
	if err != nil {
		return fmt.Errorf("ask Stowaway: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("ask Stowaway: status %s", response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// await waits for a Status.
func (m *manager) await(ctx context.Context, what string, done func(*tunnel.Status) bool) error {
	return host.Await(ctx, what, func() (bool, error) {
		var s tunnel.Status
		err := m.ask(ctx, http.MethodGet, tunnel.PathStatus, nil, &s)
		return err == nil && done(&s), err
	})
}

// awaitCounters waits until the carrier has reported what it relayed, and so proves that it did.
func (m *manager) awaitCounters(ctx context.Context, done func(tunnel.Counters) bool) error {
	return m.await(ctx, "the carrier reports what it relayed", func(s *tunnel.Status) bool { return done(s.Carriers[podUID].Routes[routeID]) })
}
