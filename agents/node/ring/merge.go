package ring

// Earliest finds the ring with the earliest record. times has the time of each ring's next record; zero means an empty
// ring. first is -1 if no record is due up to until. others is the earliest time in the other rings, or until: the
// records of ring first up to then come next.
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
