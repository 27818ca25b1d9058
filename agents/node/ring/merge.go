package ring

// Earliest finds which ring has the record that came first, by the times of each one's next; -1 if there is none up to a
// time. A time of zero is of a ring without a record. others is when the next of the other rings came, or that time: up to
// then the first ring's records follow each other.
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
