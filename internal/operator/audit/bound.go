package audit

import (
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// Bounds of records that cost their sender nothing: they would push other records out of the container's log.
const (
	burst     = 100
	perSecond = 1
)

// Bound limits records of one sort. The next one after a flood counts those that were left out.
type Bound struct {
	rate    flowcontrol.PassiveRateLimiter
	omitted atomic.Int64
}

// NewBound returns a bound of 100 records at once, and then one a second.
func NewBound(c clock.PassiveClock) *Bound {
	return &Bound{rate: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(perSecond, burst, c)}
}

// Next returns the logger of the next record, or false if it must be left out.
func (b *Bound) Next(log logr.Logger) (logr.Logger, bool) {
	if !b.rate.TryAccept() {
		b.omitted.Add(1)
		return log, false
	}
	if n := b.omitted.Swap(0); n > 0 {
		log = log.WithValues("omitted", n)
	}
	return log, true
}
