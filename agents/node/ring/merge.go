package ring

// Earliest finds the ring with the earliest record. times are those of each ring's next record, zero for a ring without one;
// first is -1 if there is none up to until. others is the earliest time of the other rings, or until: the first ring's
// records up to then are next.
func Earliest(times []uint64, until uint64) (first int, others uint64) {
	first, others = -1, until
	for i, at := range times {
		switch {
		case at == 0 || at > until:
		case first < 0:
			first = i
		case at < times[first]:
			first, others = i, times[first]
		default:
			others = min(others, at)
		}
	}
	return first, others
}
