// Package beat has what a process does now and then done at the same moments. Where nothing else is to do, a process that
// wakes takes more of a processor than what it then does.
package beat

import "time"

var began = time.Now()

// Until is how long it is until the next multiple of d since the process began: more than 0, at most d.
func Until(d time.Duration) time.Duration { return until(time.Since(began), d) }

func until(since, d time.Duration) time.Duration { return d - since%d }
