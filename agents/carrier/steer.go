package carrier

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// steerTimeout bounds one request to the opener, and steerRetry is the pause after a failure.
	steerTimeout = 2 * time.Second
	steerRetry   = time.Second
	// listenInterval is how often the carrier looks whether the app listens.
	listenInterval = time.Second
)

// steerer decides which ports' connections the opener redirects.
type steerer struct {
	steer func(ctx context.Context, port uint16, on bool) error
	log   *slog.Logger
	// listens reports whether the app listens on a port; nil if it always does.
	listens func(ctx context.Context, port uint16) (bool, error)

	mu sync.Mutex
	// on has the ports that are steered.
	on map[uint16]bool
	// unsure has ports whose last request had no good answer. The opener may have done it or not.
	unsure map[uint16]bool
	// until has the end of the grace period of steered ports without a live route.
	until map[uint16]time.Time
	// unserved has the ports that would be steered if the app listened on them.
	unserved map[uint16]bool
	// full: the carrier has no room for more connections.
	full bool
}

func newSteerer(steer func(context.Context, uint16, bool) error, log *slog.Logger) *steerer {
	return &steerer{steer: steer, log: log, on: map[uint16]bool{}, unsure: map[uint16]bool{}, until: map[uint16]time.Time{}}
}

// update makes the opener follow the routes. It returns when to call it again; zero means after the next change.
func (s *steerer) update(ctx context.Context, r *routing, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	s.unserved = map[uint16]bool{}
	ports := maps.Clone(s.on)
	maps.Copy(ports, s.unsure)
	for port := range r.ports {
		ports[port] = true
	}
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		want, until := s.want(r.ports[port], port, now)
		if !until.IsZero() {
			sooner(until)
		}
		if want && s.needsApp(r.ports[port]) {
			want = s.appListens(ctx, port)
			sooner(now.Add(listenInterval))
		}
		if want == s.on[port] && !s.unsure[port] {
			continue
		}
		if err := s.request(ctx, port, want); err != nil {
			s.log.Warn("Steering a port failed", "port", port, "on", want, "error", err)
			s.unsure[port] = true
			sooner(now.Add(steerRetry))
			continue
		}
		s.log.Info("Steering a port", "port", port, "on", want)
		delete(s.unsure, port)
		if want {
			s.on[port] = true
		} else {
			delete(s.on, port)
			delete(s.until, port)
		}
	}
	return next
}

// want reports whether a port is to be steered, and until when if no route of it is live.
func (s *steerer) want(p *portRoutes, port uint16, now time.Time) (bool, time.Time) {
	switch {
	case p == nil || s.full:
		delete(s.until, port)
		return false, time.Time{}
	case p.live:
		delete(s.until, port)
		return true, time.Time{}
	case !s.on[port]:
		return false, time.Time{}
	}
	if _, ok := s.until[port]; !ok {
		var grace time.Duration
		for _, r := range p.all {
			grace = max(grace, r.grace)
		}
		s.until[port] = now.Add(grace)
	}
	until := s.until[port]
	if !now.Before(until) {
		return false, time.Time{}
	}
	return true, until
}

// needsApp reports whether a port is steered only while the app listens on it. The kernel accepts a steered connection before anyone knows
// whether the app would. So a check that only connects, like the kubelet's TCP probe, would find a Pod ready whose app does not listen.
func (s *steerer) needsApp(p *portRoutes) bool {
	rest := p.liveRest()
	return s.listens != nil && (rest == nil || !rest.probesToClient)
}

// appListens is true if the opener cannot tell. Otherwise the port is unserved.
func (s *steerer) appListens(ctx context.Context, port uint16) bool {
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	is, err := s.listens(ctx, port)
	if !is && err == nil {
		s.unserved[port] = true
		return false
	}
	return true
}

func (s *steerer) request(ctx context.Context, port uint16, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	return s.steer(ctx, port, on)
}

// setFull reports whether the value has changed.
func (s *steerer) setFull(full bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := s.full != full
	s.full = full
	return changed
}

// ports returns the steered ports, and those on which the app does not listen, both in order.
func (s *steerer) ports() (steered, unserved []uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.on)), slices.Sorted(maps.Keys(s.unserved))
}
