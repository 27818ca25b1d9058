package follow

import (
	"time"

	"github.com/sonde-operator/sonde/internal/cli/results"
)

// sources knows up to which time all Pods have sent their packets, by the clocks of their nodes.
type sources struct {
	// settled is when the Pods that exist at the beginning are taken to be known.
	settled time.Time
	// joined are the UIDs of Pods whose stream has begun, and expected those of others that may have packets soon.
	joined, expected map[string]bool
	// until is the time up to which the packets of a running stream have come; zero if its keeper does not say it.
	until map[string]uint64
}

func newSources(settled time.Time) sources {
	return sources{settled: settled, joined: map[string]bool{}, expected: map[string]bool{}, until: map[string]uint64{}}
}

// update notes a Pod before its stream begins: its first packets may come soon.
func (s *sources) update(u *results.Update) {
	if s.joined[u.UID] || u.Phase.Final() {
		delete(s.expected, u.UID)
		return
	}
	s.expected[u.UID] = true
}

func (s *sources) join(uid string) {
	delete(s.expected, uid)
	s.joined[uid], s.until[uid] = true, 0
}

func (s *sources) leave(uid string) { delete(s.until, uid) }

// complete returns the time up to which all packets of all Pods have come; zero if that is not known.
func (s *sources) complete(now time.Time) uint64 {
	if len(s.expected) > 0 || len(s.until) == 0 || now.Before(s.settled) {
		return 0
	}
	least := ^uint64(0)
	for _, at := range s.until {
		if least = min(least, at); least == 0 {
			break
		}
	}
	return least
}
