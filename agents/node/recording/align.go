package recording

import "time"

var started = time.Now()

// UntilNext returns the time until the next multiple of interval since the process started: more than 0, at most interval.
// Timers with this time fire together, so that an idle process wakes once for all of them.
func UntilNext(interval time.Duration) time.Duration { return untilNext(time.Since(started), interval) }

func untilNext(since, interval time.Duration) time.Duration { return interval - since%interval }
