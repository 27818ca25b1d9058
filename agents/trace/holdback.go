package trace

import (
	"time"
	"unsafe"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/output"
)

// Bounds of the events that are held back until their container is known. Beyond them events are written, because they
// may belong to a selected container.
const (
	maxHeldTime  = uint64(5 * time.Second)
	maxHeldBytes = 8 << 20 // in memory
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

// size is the event's memory in bytes.
func (e *heldEvent) size() int { return int(unsafe.Sizeof(*e)) + cap(e.lines) }

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
	if h.bytes += h.queue[len(h.queue)-1].size(); h.bytes > maxHeldBytes {
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
		h.bytes -= e.size()
		if state != excluded {
			t.out.WriteLines(e.to, e.lines)
		}
	}
	clear(h.queue[:n])
	h.queue = h.queue[n:] // without moving the rest: beyond maxHeldBytes each event releases another
}
