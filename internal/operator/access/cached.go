package access

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// Reviews reviews the rights of requesters. Reviewer and Cached implement it.
type Reviews interface {
	ReviewPods(ctx context.Context, verb string, who Requester, namespace string) (Decision, error)
	ReviewNodes(ctx context.Context, verb string, who Requester) (Decision, error)
}

// maxCached bounds the decisions of a Cached. A full cache forgets the one that was used least recently.
const maxCached = 4096

// Cached keeps decisions for a short time, so that a download in many parts costs few reviews. It notices a withdrawn right
// after at most its TTL. It does not keep failed reviews.
type Cached struct {
	reviews   Reviews
	clock     clock.PassiveClock
	ttl       time.Duration
	decisions *cache.LRUExpireCache
}

// NewCached returns a Cached that keeps the answers of reviews for ttl.
func NewCached(reviews Reviews, c clock.PassiveClock, ttl time.Duration) *Cached {
	return &Cached{reviews: reviews, clock: c, ttl: ttl, decisions: cache.NewLRUExpireCacheWithClock(maxCached, c)}
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

func (c *Cached) get(question string, review func() (Decision, error)) (Decision, error) {
	key := sha256.Sum256([]byte(question)) // a requester's groups may have 64 KiB, and an entry stays until its place is needed
	if d, ok := c.decisions.Get(key); ok {
		return d.(Decision), nil
	}
	asked := c.clock.Now() // the answer may show the state at the time of the question
	d, err := review()
	if err != nil {
		return Decision{}, err
	}
	// The cache still returns an entry at the moment when it expires, so that comes a nanosecond early.
	c.decisions.Add(key, d, c.ttl-c.clock.Since(asked)-1)
	return d, nil
}

// appendString appends s so that no two lists of strings give the same bytes.
func appendString(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
