package results

import (
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/operator/audit"
)

// refusals writes the audit records of refused requests. It bounds those without a known requester, because requests without a
// token cost their sender nothing. Records of known users are never left out.
type refusals struct{ unknown *audit.Bound }

func newRefusals(c clock.PassiveClock) *refusals { return &refusals{audit.NewBound(c)} }

// record writes the record of a refusal.
func (r *refusals) record(log logr.Logger, f *failure, known bool) {
	if !known {
		bounded, ok := r.unknown.Next(log)
		if !ok {
			return
		}
		log = bounded
	}
	log.Info("Refusing result", audit.Key, audit.ResultRefused, "code", f.code, "reason", f.message)
}
