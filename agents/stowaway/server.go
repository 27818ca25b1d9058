package stowaway

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// server is the whole state of a Stowaway.
type server struct {
	identity *tunnel.Identity
	manager  tunnel.PublicKey
	log      *slog.Logger

	// locked is when the lock was last taken by relieve, in ns since 1970.
	locked atomic.Int64

	mu       sync.Mutex
	index    *index
	sessions map[string]*session // of clients, by their routes' IDs
	carriers map[string]*carrier // of the State, by their Pods' UIDs
	managers connections
	// tableTimeout is the constant, or less in tests.
	tableTimeout time.Duration
	// lastState is when the manager last sent a State, or when this process began.
	lastState time.Time
	// heartbeats of routes whose clients have gone.
	heartbeats map[string]time.Time
	// streams has each stream until its memory is free. A stream can outlive its client's session: it holds what the client has sent
	// until its carrier has read that.
	streams map[*stream]struct{}
	// opened counts the streams of each namespace's Pods.
	opened map[string]int
	// crowding has the namespaces in which no stream is opened, because memory is short.
	crowding map[string]bool
	// settling: streams or connections were ended at the last check. relieved is the namespace whose waiting streams were ended then.
	settling bool
	relieved string
	// reading bounds the bytes of reports that are parsed of each namespace's carriers.
	reading map[string]*rate.Limiter
}

func newServer(cfg *Config) *server {
	s := &server{
		identity: cfg.Identity, manager: cfg.ManagerKey, log: cfg.Log, index: &index{},
		sessions: map[string]*session{}, carriers: map[string]*carrier{}, heartbeats: map[string]time.Time{},
		tableTimeout: tableTimeout, lastState: time.Now(), streams: map[*stream]struct{}{}, opened: map[string]int{},
	}
	s.locked.Store(time.Now().UnixNano())
	return s
}

// announce wakes the carriers of a route, which may be nil. Others have no new Table: to make all takes long beside thousands of
// carriers, and a client may connect as often as it likes. The caller holds the lock.
func (s *server) announce(r *route) {
	if r == nil {
		return
	}
	for pod := range r.pods {
		if c := s.carriers[pod]; c != nil {
			c.wake()
		}
	}
}

// apply replaces the State. Sessions, streams and carriers that it does not have end.
func (s *server) apply(i *index) {
	for _, session := range s.replaceIndex(i) {
		session.peer.Close()
	}
}

// replaceIndex returns the sessions that the index does not have, which the caller closes.
func (s *server) replaceIndex(i *index) (over []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.generation != lapsed {
		s.lastState = time.Now()
	}
	if s.index.generation == i.generation {
		return nil
	}
	before := s.index
	s.index = i
	for id, session := range s.sessions {
		if !i.owns(id, session.key) {
			over = append(over, session)
			session.cutPods(nil)
			delete(s.sessions, id)
			s.announce(i.routes[id])
			continue
		}
		session.cutPods(i.routes[id].pods)
	}
	for id := range s.heartbeats {
		if i.routes[id] == nil {
			delete(s.heartbeats, id)
		}
	}
	for pod, c := range s.carriers {
		if i.pods[pod].Key != c.key {
			c.connections.closeAll()
			delete(s.carriers, pod)
		}
	}
	namespaces := map[string]*rate.Limiter{}
	for pod, c := range i.pods {
		if s.carriers[pod] == nil {
			s.carriers[pod] = newCarrier(c)
		}
		namespace := namespaceOf(c.Name)
		namespaces[namespace] = cmp.Or(namespaces[namespace], s.reading[namespace], rate.NewLimiter(namespacePace, 2*namespacePace))
	}
	s.reading = namespaces
	for _, pod := range i.changedPods(before) {
		if c := s.carriers[pod]; c != nil {
			c.wake()
		}
	}
	s.log.Info("Applying a State", "generation", i.generation, "routes", len(i.routes), "carriers", len(i.pods))
	return over
}

// status is what the manager asks for.
func (s *server) status() *tunnel.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := &tunnel.Status{
		Version: tunnel.Version, Generation: s.index.generation,
		Routes: map[string]tunnel.RouteStatus{}, Carriers: map[string]tunnel.CarrierStatus{},
	}
	for id := range s.index.routes {
		r := tunnel.RouteStatus{Heartbeat: s.heartbeats[id]}
		if session := s.sessions[id]; session != nil {
			r.Connected, r.Heartbeat = true, session.heartbeat()
		}
		status.Routes[id] = r
	}
	for pod, c := range s.carriers {
		// The routes may have changed since the report.
		steered, unserved, counters := s.index.ofPod(pod, c.steered, c.unserved, c.counters)
		status.Carriers[pod] = tunnel.CarrierStatus{Connected: c.connections.any(), Steered: steered, Unserved: unserved, Routes: counters}
	}
	return status
}

const (
	// managerPatience is how long routes last without a State from the manager. Only the manager reviews rights and expiry.
	managerPatience = 10 * time.Minute
	// lapsed is the generation of the empty State that follows. The manager replaces it when it returns.
	lapsed = "lapsed"
)

// watchManager ends all routes when the manager has been silent for too long.
func (s *server) watchManager(ctx context.Context) error {
	ticker := time.NewTicker(managerPatience / 100)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			s.lapse(now)
		}
	}
}

func (s *server) lapse(now time.Time) {
	s.mu.Lock()
	silent, done := now.Sub(s.lastState), s.index.generation == lapsed
	s.mu.Unlock()
	if silent > managerPatience && !done {
		s.log.Warn("Ending all routes, because the manager is silent", "for", silent.Round(time.Second).String())
		s.apply(&index{generation: lapsed})
	}
}
