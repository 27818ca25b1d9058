package results

import (
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/operator/audit"
)

// Bounds of the records of refusals without a known requester. Requests without a token cost their sender nothing, and
// would push the audit records of known users out of the container's log. Records of known users are never left out.
const (
	unknownBurst = 100
	unknownRate  = 1 // for each second
)

// refusals writes the audit records of refused requests.
type refusals struct {
	unknown flowcontrol.PassiveRateLimiter
	omitted atomic.Int64 // since the last record of an unknown requester
}

func newRefusals(c clock.PassiveClock) *refusals {
	return &refusals{unknown: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(unknownRate, unknownBurst, c)}
}

// record writes the record of a refusal.
func (r *refusals) record(log logr.Logger, f *failure, known bool) {
	if !known {
		if !r.unknown.TryAccept() {
			r.omitted.Add(1)
			return
		}
		if n := r.omitted.Swap(0); n > 0 {
			log = log.WithValues("omitted", n)
		}
	}
	log.Info("Refusing result", audit.Key, audit.ResultRefused, "code", f.code, "reason", f.message)
}
