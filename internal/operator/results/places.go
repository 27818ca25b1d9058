package results

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// MaxConnections is the bound of Server.MaxConnections for one replica: connections without a request cost memory, too.
const MaxConnections = 1024

// Bounds of the requests that one replica serves at once. Downloads and streams have places apart, so neither keeps out the
// other. A namespace may take half of them, and a user a quarter of that: see places.
const (
	maxDownloads, downloadsPerNamespace, downloadsPerUser = 64, 32, 16
	maxStreams, streamsPerNamespace, streamsPerUser       = 128, 64, 16
)

// Bounds of the keepers that the streams of one replica watch at once, each by a connection of its own. A namespace may take half
// of them, which is enough for a capture of as many Pods as --max-pods-per-capture allows by default, and so may a user.
const maxWatches, watchesPerNamespace, watchesPerUser = 512, 256, 256

// A request that has lasted so long gives its place to a namespace that has fewer, even if only by one. A stream yields
// sooner, because it costs its reader less to continue.
const (
	downloadSlice = time.Minute
	streamSlice   = 10 * time.Second
)

// streamLifetime bounds a stream. The reader continues it with another request.
const streamLifetime = 10 * time.Minute

// Causes of the end of a request before its answer is complete, for which neither side is to blame.
var (
	errYield    = errors.New("its place was given to a namespace that has fewer: continue where it ended")
	errLifetime = fmt.Errorf("a stream ends after %v: continue where it ended", streamLifetime)
)

// interrupted reports whether the manager ended a request so that its reader continues later.
func interrupted(err error) bool { return errors.Is(err, errYield) || errors.Is(err, errLifetime) }

// places counts the requests of one sort, or the watches of keepers. Its bounds hold for each namespace, because one namespace may have any number of
// users, captures and tokens. They also hold for each user, who may have many namespaces. The namespace is the target's:
// only there does a requester need a right, and several tenants may share the namespace of the capture.
//
// A user may also make many namespaces, each with users of its own. So no bound is enough: when all places are taken, the
// namespace or user with the most gives one to the one with fewer.
type places struct {
	name                         string // plural, for messages
	limit, perNamespace, perUser int
	slice                        time.Duration
	clock                        clock.PassiveClock

	mu   sync.Mutex
	held map[*place]struct{}
}

type place struct {
	namespace, user string
	since           time.Time
	end             context.CancelCauseFunc
	// applies says that this request has no place yet: another has to end for it.
	applies bool
}

func newPlaces(name string, limit, perNamespace, perUser int, slice time.Duration, clk clock.PassiveClock) *places {
	return &places{name: name, limit: limit, perNamespace: perNamespace, perUser: perUser, slice: slice, clock: clk, held: map[*place]struct{}{}}
}

// take takes a place until leave is called. The context ends with errYield when the place is given to another. If all are
// taken, the request only applies for the place of another, which settle takes: no request without the right to it, which
// the caller finds out between the two, ends another.
func (p *places) take(ctx context.Context, namespace, user string) (held context.Context, own *place, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inNamespace, ofUser := 0, 0
	for h := range p.held {
		if h.namespace == namespace {
			inNamespace++
		}
		if h.user == user {
			ofUser++
		}
	}
	own = &place{namespace: namespace, user: user, since: p.clock.Now()}
	victim, err := p.victim(own)
	switch {
	case ofUser >= p.perUser:
		return nil, nil, full(http.StatusTooManyRequests, "this user has %d %s open, the most at one replica of the manager: try again when one has ended", ofUser, p.name)
	case inNamespace >= p.perNamespace:
		return nil, nil, full(http.StatusTooManyRequests, "the users of captures in namespace %s have %d %s open, the most at one replica of the manager: try again when one has ended", namespace, inNamespace, p.name)
	case err != nil:
		return nil, nil, err
	case len(p.held) >= 2*p.limit:
		return nil, nil, p.taken(own)
	}
	held, own.end = context.WithCancelCause(ctx)
	own.applies = victim != nil
	p.held[own] = struct{}{}
	return held, own, nil
}

// hold is take and settle in one, for a caller whose right is known.
func (p *places) hold(ctx context.Context, namespace, user string) (held context.Context, own *place, err error) {
	if held, own, err = p.take(ctx, namespace, user); err != nil {
		return nil, nil, err
	}
	if err = p.settle(own); err != nil {
		p.leave(own)
		return nil, nil, err
	}
	return held, own, nil
}

// settle gives a request with the right to it the place that it applies for.
func (p *places) settle(own *place) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !own.applies {
		return nil
	}
	victim, err := p.victim(own)
	if err != nil {
		return err
	}
	if victim != nil {
		delete(p.held, victim) // its handler ends within moments
		victim.end(errYield)
	}
	own.applies = false
	return nil
}

func (p *places) leave(own *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, own)
	own.end(nil)
}

// victim returns whose place a request may have, or nil if one is free.
func (p *places) victim(own *place) (*place, error) {
	namespaces, users, taken := map[string]int{}, map[string]int{}, 0
	for h := range p.held {
		if !h.applies {
			taken++
			namespaces[h.namespace]++
			users[h.user]++
		}
	}
	if taken < p.limit {
		return nil, nil
	}
	load := func(h *place) int { return max(namespaces[h.namespace], users[h.user]) }
	most := p.most(load)
	if more := load(most) - load(own); more < 1 || more == 1 && p.clock.Since(most.since) < p.slice {
		return nil, p.taken(own)
	}
	return most, nil
}

// most returns the oldest place of those with the highest load.
func (p *places) most(load func(*place) int) *place {
	var most *place
	for h := range p.held {
		if h.applies {
			continue
		}
		if most == nil {
			most = h
			continue
		}
		more := load(h) - load(most)
		if more > 0 || more == 0 && h.since.Before(most.since) {
			most = h
		}
	}
	return most
}

func (p *places) taken(own *place) error {
	return full(http.StatusServiceUnavailable, "all %d places for %s at one replica of the manager are taken, none by a namespace that has more than %s: try again", p.limit, p.name, own.namespace)
}

// full returns the failure for a request that found no place.
func full(code int, format string, args ...any) error {
	return &failure{code: code, header: http.Header{"Retry-After": {"2"}}, message: fmt.Sprintf(format, args...)}
}
