package trace

import (
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// count reads how many events were lost, by place.
func (t *Trace) count() {
	var lost Account
	for _, r := range t.program.Rings {
		lost.LostRing += r.Lost()
		lost.LostCompat += r.Counter()
	}
	for _, n := range t.lostRare() {
		lost.LostRare += n
	}
	lost.LostRecursion = t.program.Missed()
	lost.LostAIO = t.program.AIOLost()
	lost.LostUring = t.program.UringLost() + t.ringsBefore + t.decoder.Forgotten()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = lost
}

// lostRare returns how many rare events that would have been written found no room, by name.
func (t *Trace) lostRare() map[string]uint64 {
	lost := map[string]uint64{}
	for kind, n := range t.program.RareLost() {
		if n > 0 && t.writes(kernel.Kind(kind)) {
			lost[decode.EventNames[kernel.Kind(kind)]] += n
		}
	}
	if n := t.unowned + t.unclosed; n > 0 {
		lost[decode.EventConnection] += n
	}
	// For a thread that could not be marked, its start and an unknown number of its events are missing.
	if n := t.program.Unmarked(); n > 0 {
		lost[decode.EventFork] += n
	}
	return lost
}

// countCalls reads at the end how many of each call and event found no room.
func (t *Trace) countCalls() {
	lost := t.lostRare()
	add := func(number uint32, name string) {
		for _, r := range t.program.Rings {
			if n := r.LostOf(number); n > 0 {
				lost[name] += n
			}
		}
	}
	for number, c := range t.calls {
		if c != nil {
			add(uint32(number), c.Name)
		}
	}
	add(kernel.LostFault, decode.EventFault)
	add(kernel.LostUring, decode.EventUring)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost.LostCalls, t.lost.Unnamed = lost, t.decoder.Unnamed()+t.unnamed
}
