package trace

// handsOn says that records go from a ring to their sink with nothing to be known of them but their sizes and times.
func (t *Trace) handsOn() bool {
	return t.cfg.Binary && t.end == "" && len(t.only.names) == 0 && !t.program.timesFaults
}

// handOn hands on one CPU's records, of which the first is e, up to the time of the others' next one, or to the trace's
// end; false says that there is no further one yet.
func (t *Trace) handOn(r cpuRing, e *event, others uint64) (there bool, err error) {
	s := t.json
	for there = true; there && t.end == "" && e.record.Time <= others; {
		records, n := r.run(others, t.room())
		if len(records) < lineBuffer {
			s.lines = append(s.lines, records...)
			t.added(s, n)
		} else {
			if t.flush(s); t.end != "" {
				break
			}
			own := s.lines
			s.lines = records
			t.added(s, n) // which hands so many on at once
			s.lines = own
		}
		r.Skip(uint64(len(records)))
		r.FreeMuch()
		if there, err = r.next(e); err != nil {
			return false, err
		}
	}
	return there, nil
}
