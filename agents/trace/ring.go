package trace

import (
	"github.com/sonde-operator/sonde/agents/node/ring"
)

// cpuRing is the ring that one CPU writes, of records.
type cpuRing struct{ *ring.Ring }

// ringsOf are those of a program's map.
func ringsOf(all []*ring.Ring) []cpuRing {
	rings := make([]cpuRing, len(all))
	for i, r := range all {
		rings[i] = cpuRing{r}
	}
	return rings
}

// next returns the record at the ring's place; false if there is none yet. What it points to is the ring's until Free.
func (r cpuRing) next(e *event) (bool, error) {
	if !r.Ready() {
		return false, nil
	}
	if !e.parse(r.Rest()) {
		return false, errNotWhole
	}
	return true, nil
}

// run returns the records from the ring's place on that lie in one piece and came by a time, and how many they are: at most
// so many, and no more than make up a lineBuffer, so that they are still in the processor's cache when they are copied. One
// that cannot be read ends them, and is next's to tell of.
func (r cpuRing) run(until, most uint64) (records []byte, n uint64) {
	all, left := r.Rest(), min(r.Left(), lineBuffer)
	size := uint64(0)
	for ; n < most && size < left; n++ {
		head := headOf(all[size:])
		if head == nil || head.Time > until {
			break
		}
		size += uint64(head.Size)
	}
	return all[:size], n
}
