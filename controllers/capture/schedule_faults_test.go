package capture

import (
	"github.com/sonde-operator/sonde/test/memapi"
)

// singleFault is one fault at one write.
type singleFault struct {
	at, observed int
	// common is the number of writes before the scenario's own action.
	common int
	// before and after crash the manager before or after the write; answer is the wrong answer otherwise.
	before, after bool
	answer        *memapi.Fault
	// what describes the write.
	what string
}

// chooseFault decides what happens to a request.
func (s *schedule) chooseFault(m *replica, verb string, key memapi.Key, write bool) memapi.Fault {
	if s.plan != nil {
		return s.plan.choose(s, m, verb, key, write)
	}
	if s.calm {
		return memapi.Fault{}
	}
	var f memapi.Fault
	if s.rand.IntN(1000) < s.faults {
		s.failures++
		f = memapi.RandomFault(s.rand, write, func() { s.crash(m) }, func() { s.handOver(m) })
	}
	if s.Depth < 2 && f.Before == nil && s.rand.IntN(1000) < s.pauses {
		f.Before = func() { s.Meanwhile(s.rand, m, s.step) }
	}
	return f
}

func (p *singleFault) choose(s *schedule, m *replica, verb string, key memapi.Key, write bool) memapi.Fault {
	if !write {
		return memapi.Fault{}
	}
	p.observed++
	if p.observed != p.at {
		return memapi.Fault{}
	}
	p.what = verb + " " + key.String()
	switch {
	case p.before:
		return memapi.Fault{Before: func() { s.crash(m) }}
	case p.after:
		return memapi.Fault{After: func() { s.crash(m) }}
	}
	return *p.answer
}

// crash kills a manager in the middle of a pass.
func (s *schedule) crash(m *replica) {
	m.requests.Dead = true
	if s.leader == m {
		s.leader, s.leaderUntil = nil, s.clock.Now()
		if s.plan != nil {
			s.leader = m // settle starts the next
		}
	}
}

// handOver makes another manager the leader while this one still finishes its pass.
func (s *schedule) handOver(m *replica) {
	if s.leader == m && s.Depth < 2 {
		s.leader = s.newReplica(s.rand.IntN(6))
	}
	s.Meanwhile(s.rand, m, s.step)
}
