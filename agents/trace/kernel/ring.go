package kernel

import "github.com/sonde-operator/sonde/agents/node/ring"

// Ring is the ring that one CPU writes system calls and page faults to.
type Ring struct{ *ring.Ring }

func newRings(mapped []*ring.Ring) []Ring {
	rings := make([]Ring, len(mapped))
	for i, r := range mapped {
		rings[i] = Ring{r}
	}
	return rings
}

// Next parses the record at the ring's position into rec. It returns false if there is none yet. The record is valid
// until Free.
func (r Ring) Next(rec *Record) (bool, error) {
	if !r.Ready() {
		return false, nil
	}
	if !rec.Parse(r.Rest()) {
		return false, ErrMalformed
	}
	return true, nil
}

// Ahead visits the records from the ring's position on that are not later than until, as long as visit returns true, and moves no
// position. It reports whether it has visited all.
func (r Ring) Ahead(until uint64, visit func(*Record) bool) (all bool, err error) {
	var e Record
	for ahead := (Ring{r.Ring.Ahead()}); ; ahead.Skip(uint64(e.Head.Size)) {
		ok, err := ahead.Next(&e)
		if err != nil {
			return false, err
		}
		if !ok || e.Head.Time > until {
			return true, nil
		}
		if !visit(&e) {
			return false, nil
		}
	}
}

// Batch returns the contiguous records from the ring's position on that are not later than until, and their number. It
// returns at most maxRecords, and about maxBytes, which should fit into the processor's cache. It stops before a
// malformed record, which Next reports.
func (r Ring) Batch(until, maxRecords, maxBytes uint64) (records []byte, n uint64) {
	all, left := r.Rest(), min(r.Left(), maxBytes)
	size := uint64(0)
	for ; n < maxRecords && size < left; n++ {
		head := headOf(all[size:])
		if head == nil || head.Time > until {
			break
		}
		size += uint64(head.Size)
	}
	return all[:size], n
}
