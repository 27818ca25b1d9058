package trace

import "github.com/sonde-operator/sonde/agents/node/ring"

// lostFault is LOST_FAULT of bpf/trace.bpf.c, rareKinds is its MAX_KINDS.
const (
	lostFault = uint32(ring.Kinds - 1)
	rareKinds = 16
)

// rareNames are the events that go through the ring of their own, by kind.
var rareNames = map[traceKind]string{
	traceKindKIND_EXEC:       eventExec,
	traceKindKIND_FORK:       eventFork,
	traceKindKIND_EXIT:       eventExit,
	traceKindKIND_SIGNAL:     eventSignal,
	traceKindKIND_OOM:        eventOOM,
	traceKindKIND_CONNECTION: eventConnection,
	traceKindKIND_RETRANSMIT: eventRetransmit,
	traceKindKIND_RESET:      eventReset,
}

// count reads what was lost, by place.
func (t *Trace) count() {
	var inRings, compat, inRare uint64
	for _, r := range t.program.rings {
		inRings += r.Lost()
		compat += r.Own()
	}
	for _, n := range t.lostRare() {
		inRare += n
	}
	missed := t.program.missed()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account.LostRing, t.account.LostCompat, t.account.LostRare, t.account.LostRecursion = inRings, compat, inRare, missed
}

// lostRare is what found no room among the rare events, by name: of those that would have been written. FLAP has none.
func (t *Trace) lostRare() map[string]uint64 {
	var counts [rareKinds]uint64
	if t.cfg.Flap == nil {
		_ = t.program.objects.Variables[traceVarRareLost].Get(&counts)
	}
	var lost map[string]uint64
	add := func(name string, n uint64) {
		if lost == nil {
			lost = map[string]uint64{}
		}
		lost[name] += n
	}
	for kind, name := range rareNames {
		if n := counts[kind]; n > 0 && t.records(kind) {
			add(name, n)
		}
	}
	// Of each thread that could not be marked its beginning is missing, and nobody knows what else.
	if n := t.program.unmarked(); n > 0 {
		add(eventFork, n)
	}
	return lost
}

// countCalls reads, at the end, of which calls and events those were that found no room.
func (t *Trace) countCalls() {
	lost := t.lostRare()
	if lost == nil {
		lost = map[string]uint64{}
	}
	add := func(number uint32, name string) {
		for _, r := range t.program.rings {
			if n := r.LostOf(number); n > 0 {
				lost[name] += n
			}
		}
	}
	for number, c := range t.calls {
		if c != nil {
			add(uint32(number), c.name)
		}
	}
	add(lostFault, eventFault)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.account.LostCalls = lost
}
