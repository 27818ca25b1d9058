package capture

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fault is a disturbance of one request to the API server.
type fault struct {
	name string
	// err is the answer to the manager. done reports that the server executed the request nevertheless.
	err  error
	done bool
	// before and after run before and after the request reaches the server.
	before, after func()
}

// faultKinds are wrong answers of an API server, or of a proxy before it. Only writes can fail and be done.
var faultKinds = []fault{
	{name: "500", err: apierrors.NewInternalError(errors.New("injected"))},
	{name: "429", err: apierrors.NewTooManyRequests("injected", 1)},
	{name: "503", err: apierrors.NewServiceUnavailable("injected")},
	{name: "timeout, not done", err: fmt.Errorf("injected: %w", context.DeadlineExceeded)},
	{name: "404 for a moment", err: apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "404 page not found", 0, true)},
	{name: "403", err: apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("injected"))},
	{name: "409", err: apierrors.NewConflict(schema.GroupResource{}, "", errors.New("injected"))},
	{name: "timeout, done", err: fmt.Errorf("injected: %w", context.DeadlineExceeded), done: true},
}

// readFaults is the number of faultKinds that reads can have, the first ones.
const readFaults = 6

// singleFault is one fault at one write.
type singleFault struct {
	at, observed int
	// common is the number of writes before the scenario's own action.
	common int
	// before and after crash the manager before or after the write; answer is the wrong answer otherwise.
	before, after bool
	answer        *fault
	// what describes the write.
	what string
}

// chooseFault decides what happens to a request.
func (s *schedule) chooseFault(m *replica, verb string, key objectKey, write bool) fault {
	if s.plan != nil {
		return s.plan.choose(s, m, verb, key, write)
	}
	if s.calm {
		return fault{}
	}
	var f fault
	if s.rand.IntN(1000) < s.faults {
		s.failures++
		n := readFaults
		if write {
			n = len(faultKinds) + 3
		}
		switch i := s.rand.IntN(n); {
		case i < len(faultKinds):
			f = faultKinds[i]
		case i == len(faultKinds):
			f.before = func() { s.crash(m) }
		case i == len(faultKinds)+1:
			f.after = func() { s.crash(m) }
		default:
			f.before = func() { s.handOver(m) }
		}
	}
	if s.depth < 2 && f.before == nil && s.rand.IntN(1000) < s.pauses {
		f.before = func() { s.meanwhile(m) }
	}
	return f
}

func (p *singleFault) choose(s *schedule, m *replica, verb string, key objectKey, write bool) fault {
	if !write {
		return fault{}
	}
	p.observed++
	if p.observed != p.at {
		return fault{}
	}
	p.what = verb + " " + key.String()
	switch {
	case p.before:
		return fault{before: func() { s.crash(m) }}
	case p.after:
		return fault{after: func() { s.crash(m) }}
	}
	return *p.answer
}

// crash kills a manager in the middle of a pass.
func (s *schedule) crash(m *replica) {
	m.dead = true
	if s.leader == m {
		s.leader, s.leaderUntil = nil, s.clock.Now()
		if s.plan != nil {
			s.leader = m // settle starts the next
		}
	}
}

// handOver makes another manager the leader while this one still finishes its pass.
func (s *schedule) handOver(m *replica) {
	if s.leader == m && s.depth < 2 {
		s.leader = s.newReplica(s.rand.IntN(6))
	}
	s.meanwhile(m)
}

// meanwhile takes other steps while a request is on its way.
func (s *schedule) meanwhile(m *replica) {
	if s.depth >= 2 {
		return
	}
	s.trace("meanwhile, as %s waits:", m)
	s.depth++
	for range 1 + s.rand.IntN(25) {
		s.step()
	}
	s.depth--
}
