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
	// streams are the running streams.
	streams map[string]*progress
}

// progress of one Pod's stream, as times of packets.
type progress struct {
	// until is the time up to which all packets have come; zero if the keeper does not say it.
	until uint64
	// newest is the time of the newest packet.
	newest uint64
}

// reached is the time that a stream has reached. Few earlier packets come: a file is almost in the order of time.
func (p *progress) reached() uint64 { return max(p.until, p.newest) }

func newSources(settled time.Time) sources {
	return sources{settled: settled, joined: map[string]bool{}, expected: map[string]bool{}, streams: map[string]*progress{}}
}

// update notes a Pod before its stream begins: its first packets may come soon.
func (s *sources) update(u *results.Update) {
	if s.joined[u.UID] || u.Phase.Final() {
		delete(s.expected, u.UID)
		return
	}
	s.expected[u.UID] = true
}

func (s *sources) join(uid string) *progress {
	delete(s.expected, uid)
	p := &progress{}
	s.joined[uid], s.streams[uid] = true, p
	return p
}

func (s *sources) leave(uid string) { delete(s.streams, uid) }

// complete returns the time up to which all packets of all Pods have come; zero if that is not known.
func (s *sources) complete(now time.Time) uint64 {
	if len(s.expected) > 0 || now.Before(s.settled) {
		return 0
	}
	return s.least(func(p *progress) uint64 { return p.until })
}

// reached returns the time that all streams have reached; zero if some have not begun.
func (s *sources) reached() uint64 {
	if len(s.expected) > 0 {
		return 0
	}
	return s.least((*progress).reached)
}

// least returns the least time of the running streams; zero if there are none.
func (s *sources) least(of func(*progress) uint64) uint64 {
	if len(s.streams) == 0 {
		return 0
	}
	least := ^uint64(0)
	for _, p := range s.streams {
		least = min(least, of(p))
	}
	return least
}
