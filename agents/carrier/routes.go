package carrier

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// route is one route of the table. A new table with the same ID keeps its counters and its context.
type route struct {
	id    string
	grace time.Duration
	// match is nil if the route takes all connections.
	match          *httpmatch.Matcher
	probesToClient bool
	live           bool
	*standing
}

// standing is the part of a route that outlives tables.
type standing struct {
	counters
	// recorded requests of the history, whose lock guards it.
	recorded uint64
	// ctx ends when the route is removed, and with it the route's streams.
	ctx    context.Context //nolint:containedctx // it belongs to the route, not to a call
	cancel context.CancelFunc
}

// portRoutes are the routes of one port. They do not change.
type portRoutes struct {
	// matching are the routes with a match, the oldest first.
	matching []*route
	// rest takes what no match takes; nil if only matching requests are intercepted.
	rest *route
	// behind rest are other routes without a match: admission allows them if their requests name the Pod in different ways.
	behind []*route
	// all of them.
	all  []*route
	live bool
	// tls: a match selects connections of TLS.
	tls bool
}

// routing is one state of the table. It does not change.
type routing struct {
	ports map[uint16]*portRoutes
	byID  map[string]*route
}

// port returns the routes of a port; there may be none.
func (r *routing) port(port uint16) *portRoutes {
	if p := r.ports[port]; p != nil {
		return p
	}
	return noRoutes
}

var noRoutes = &portRoutes{}

// compile makes a routing of a table. Routes that the one before had keep their counters.
func compile(ctx context.Context, t *tunnel.Table, before *routing, log *slog.Logger) *routing {
	next := &routing{ports: map[uint16]*portRoutes{}, byID: map[string]*route{}}
	sorted := slices.SortedFunc(slices.Values(t.Routes), func(a, b tunnel.TableRoute) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	for _, from := range sorted {
		r := &route{id: from.ID, grace: from.GracePeriod, probesToClient: from.ProbesToClient, live: from.Live}
		if from.Match != nil {
			m, err := from.Match.Compile()
			if err != nil { // admission compiles it, too: this is another version's match
				log.Warn("Compiling a match failed; the route gets nothing", "route", from.ID, "error", err)
				continue
			}
			r.match = m
		}
		if old := before.byID[from.ID]; old != nil {
			r.standing = old.standing
		} else {
			r.standing = &standing{}
			r.ctx, r.cancel = context.WithCancel(ctx)
		}
		next.add(r, from.Port)
	}
	for id, r := range before.byID {
		if next.byID[id] == nil {
			r.cancel()
		}
	}
	return next
}

func (r *routing) add(to *route, port uint16) {
	p := r.ports[port]
	if p == nil {
		p = &portRoutes{}
		r.ports[port] = p
	}
	r.byID[to.id] = to
	p.all = append(p.all, to)
	p.live = p.live || to.live
	switch {
	case to.match != nil:
		p.matching = append(p.matching, to)
		p.tls = p.tls || to.match.TLS()
	case p.rest == nil:
		p.rest = to
	default:
		p.behind = append(p.behind, to)
	}
}

// withLive returns a copy of the routing in which the routes with these IDs are live, and the others are not.
func (r *routing) withLive(ids []string) *routing {
	live := map[string]bool{}
	for _, id := range ids {
		live[id] = true
	}
	next := &routing{ports: map[uint16]*portRoutes{}, byID: map[string]*route{}}
	for port, p := range r.ports {
		for _, old := range p.all {
			same := *old
			same.live = live[same.id]
			next.add(&same, port)
		}
	}
	return next
}

// choose returns the route that gets a request, or nil for the app. The oldest route that matches gets it; while its client is
// not connected, the app answers.
func (p *portRoutes) choose(h *head) *route {
	if h.probe {
		return nil
	}
	return p.oldest(func(m *httpmatch.Matcher) bool { return m.Matches(&h.Request) })
}

// chooseServerName is choose for a TLS connection.
func (p *portRoutes) chooseServerName(name string) *route {
	return p.oldest(func(m *httpmatch.Matcher) bool { return m.MatchesServerName(name) })
}

// oldest returns the oldest route whose match holds, or the one without a match. It is nil if that one's client is not connected.
func (p *portRoutes) oldest(holds func(*httpmatch.Matcher) bool) *route {
	var chosen *route
	for _, r := range p.matching {
		switch {
		case !holds(r.match):
		case chosen == nil:
			chosen = r
		default:
			r.overlaps.Add(1)
		}
	}
	if chosen == nil {
		p.countBehind(false)
		chosen = p.rest
	}
	if chosen == nil || !chosen.live {
		return nil
	}
	return chosen
}

// countBehind counts, for the routes behind rest, a request or connection that goes to rest, or to the app while the client of rest is lost.
// A TCP probe counts for those that want probes. A probe by gRPC counts like a call while that client is lost.
func (p *portRoutes) countBehind(probe bool) {
	for _, r := range p.behind {
		if !probe || r.probesToClient {
			r.overlaps.Add(1)
		}
	}
}

// liveRest returns the route without a match, if its client is connected.
func (p *portRoutes) liveRest() *route {
	if p.rest != nil && p.rest.live {
		return p.rest
	}
	return nil
}

// unread reports whether connections of the port are joined without reading HTTP: nothing depends on it.
func (p *portRoutes) unread() bool {
	return len(p.matching) == 0 && p.rest == nil
}

// shares reports whether a connection with a request of this route may have requests for others, too.
func (p *portRoutes) shares(r *route) bool { return r.match != nil || len(p.all) > 1 }

// passed counts what went to the app.
func (p *portRoutes) passed() {
	for _, r := range p.all {
		r.passed.Add(1)
	}
}
