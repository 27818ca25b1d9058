package intercept

import (
	"maps"
	"slices"
	"time"
)

const (
	// maxChanges bounds the carriers that a pass creates, those that it removes, and the statuses that it writes. Each takes one or more
	// requests to the API server, and no request begins, expires or is withdrawn until the pass has ended.
	maxChanges = 50
	// nextBatch is when a pass follows that has left some. Without a pause it would find the caches from before this pass.
	nextBatch = 100 * time.Millisecond
)

// batch returns up to maxChanges of these, which are many. Namespaces take turns. It begins elsewhere at another time, so that those
// which fail in each pass do not keep out others.
func batch[T any](all []T, namespace func(T) string, now time.Time) []T {
	if len(all) <= maxChanges {
		return all
	}
	of := map[string][]T{}
	for _, one := range all {
		of[namespace(one)] = append(of[namespace(one)], one)
	}
	names := slices.Sorted(maps.Keys(of))
	turn := int(now.UnixNano() / int64(nextBatch))
	var chosen []T
	for round := 0; ; round++ {
		for i := range names {
			own := of[names[(turn+i)%len(names)]]
			if round < len(own) {
				chosen = append(chosen, own[(turn+round)%len(own)])
			}
			if len(chosen) == maxChanges {
				return chosen
			}
		}
	}
}
