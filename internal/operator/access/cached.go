package access

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Reviews reviews the rights of requesters. Reviewer and Cached implement it.
type Reviews interface {
	ReviewPods(ctx context.Context, verb string, who Requester, namespace string) (Decision, error)
	ReviewNodes(ctx context.Context, verb string, who Requester) (Decision, error)
}

// maxCached bounds the decisions of a Cached. A full cache is emptied, which costs reviews and changes no answer.
const maxCached = 4096

// Cached keeps decisions for a short time, so that a download in many parts costs few reviews. It notices a withdrawn right
// after at most its TTL. It does not keep failed reviews.
type Cached struct {
	reviews Reviews
	clock   clock.PassiveClock
	ttl     time.Duration

	mu        sync.Mutex
	decisions map[string]cachedDecision
}

type cachedDecision struct {
	Decision
	until time.Time
}

// NewCached returns a Cached that keeps the answers of reviews for ttl.
func NewCached(reviews Reviews, c clock.PassiveClock, ttl time.Duration) *Cached {
	return &Cached{reviews: reviews, clock: c, ttl: ttl, decisions: map[string]cachedDecision{}}
}

// ReviewPods is Reviewer.ReviewPods, at most ttl old.
func (c *Cached) ReviewPods(ctx context.Context, verb string, who Requester, namespace string) (Decision, error) {
	return c.get("p"+string(appendString(appendString(nil, verb), namespace))+who.key(), func() (Decision, error) {
		return c.reviews.ReviewPods(ctx, verb, who, namespace)
	})
}

// ReviewNodes is Reviewer.ReviewNodes, at most ttl old.
func (c *Cached) ReviewNodes(ctx context.Context, verb string, who Requester) (Decision, error) {
	return c.get("n"+string(appendString(nil, verb))+who.key(), func() (Decision, error) { return c.reviews.ReviewNodes(ctx, verb, who) })
}

func (c *Cached) get(key string, ask func() (Decision, error)) (Decision, error) {
	asked := c.clock.Now() // not the time of the answer, which may show the state at the time of the question
	c.mu.Lock()
	d, ok := c.decisions[key]
	c.mu.Unlock()
	if ok && asked.Before(d.until) {
		return d.Decision, nil
	}
	fresh, err := ask()
	if err != nil {
		return Decision{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.decisions) >= maxCached {
		clear(c.decisions)
	}
	c.decisions[key] = cachedDecision{Decision: fresh, until: asked.Add(c.ttl)}
	return fresh, nil
}

// appendString appends s so that no two lists of strings give the same bytes.
func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
