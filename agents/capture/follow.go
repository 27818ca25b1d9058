package capture

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
)

// followInterval is how often packets are written while someone reads the file.
const followInterval = 25 * time.Millisecond

// horizon is the time up to which all packets were read when the recorder had taken so many bytes in all.
type horizon struct{ time, taken uint64 }

// serve writes the packets of the last Read for those who read the file while it grows, at most every followInterval, and says up to
// which time all are in the file. It returns how long to wait before the next Read.
func (s *session) serve(wait time.Duration) time.Duration {
	if now := backend.Now(unix.CLOCK_MONOTONIC); now-s.served >= uint64(followInterval) {
		s.served = now
		if s.next.time == 0 {
			s.next = horizon{s.backend.ReadTo(), s.rec.Taken()}
		}
		s.rec.Push()
	}
	if s.next.time > 0 && s.rec.InFile() >= s.next.taken {
		s.cfg.Complete(s.next.time)
		s.next = horizon{}
	}
	if wait > backend.Interval { // nothing comes, and the first packet ends the wait
		return backend.Interval
	}
	return min(wait, followInterval)
}
