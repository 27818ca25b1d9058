package trace

import (
	"slices"
	"time"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/output"
)

// Bounds of the events that are held back until their container is known. Beyond them events are written, because they
// may belong to a selected container.
const (
	maxHeldTime  = uint64(5 * time.Second)
	maxHeldBytes = 8 << 20
)

// holdback keeps events in order, beginning with the first event of an undecided cgroup.
type holdback struct {
	queue []heldEvent
	bytes int
}

// heldEvent waits for the decision about its cgroup, or for an earlier event.
type heldEvent struct {
	cgroup, time uint64
	to           *output.Stream
	lines        []byte
}

// drop empties the queue and returns how many events it had.
func (h *holdback) drop() int {
	n := len(h.queue)
	h.queue = nil
	return n
}

// hold holds an event back.
func (t *Trace) hold(e *kernel.Head, to *output.Stream, lines []byte) {
	h := &t.held
	h.queue = append(h.queue, heldEvent{cgroup: e.Cgroup, time: e.Time, to: to, lines: lines})
	if h.bytes += len(lines); h.bytes > maxHeldBytes {
		t.release(e.Time)
	}
}

// release writes the held events up to the first one that must still wait. now is in nanoseconds since boot.
func (t *Trace) release(now uint64) {
	h, n := &t.held, 0
	for ; n < len(h.queue); n++ {
		e := &h.queue[n]
		state := t.containers.decided[e.cgroup]
		if state == undecided && t.containers.undecided[e.cgroup] && h.bytes <= maxHeldBytes && now < e.time+maxHeldTime {
			break
		}
		h.bytes -= len(e.lines)
		if state != excluded {
			t.out.WriteLines(e.to, e.lines)
		}
	}
	h.queue = slices.Delete(h.queue, 0, n)
}
