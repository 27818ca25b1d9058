package capture

import (
	"time"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// taker takes packets from the kernel in one way. A session tells it of interfaces that come and go, and it gives the
// session's recorder batches of whole packet blocks. All methods belong to the session's goroutine.
type taker interface {
	// name is what the account calls this way.
	name() string
	// prepare makes what the interfaces share, of which these are there, or tells why packets cannot be taken in this way.
	// Nothing is attached yet, and close lets go of all that was made.
	prepare(links []link) error
	// tap makes what an interface needs, and takes nothing before tap.start.
	tap(l *link, lt pcapng.LinkType) (tap, error)
	// taps counts the interfaces whose packets are taken, or were and have not all come.
	taps() int
	// pass hands packets to the recorder, those that came first before others, and returns how long to wait for the
	// next pass. What came on a descriptor that the session awaits ends the wait.
	pass() (time.Duration, error)
	// poll takes the kernel's counts of what was lost.
	poll() error
	// failed is called for a descriptor on which there is an error.
	failed(fd int)
	// refuse has the kernel give no further packets of any interface: the capture is over.
	refuse() error
	// settle ends taps that are parked and have given all, or give no more.
	settle()
	// close lets go of everything, also in the middle of a capture.
	close() error
}

// tap is an interface whose packets are taken.
type tap interface {
	// start lets packets in, as those of a track. unix.ENODEV or unix.ENXIO say that the interface has left.
	start(t *track) error
	// park ends the arrival of packets and takes the final counts. What has come before is taken by later passes.
	park() error
	// drop takes back a tap that was not started.
	drop() error
}

// tapped is an interface of the capture.
type tapped struct {
	*track
	tap    tap
	parked bool
}

func (s *tapped) park() error {
	s.parked = true
	return s.tap.park()
}

// program is the classic filter for a link type.
func (s *session) program(lt pcapng.LinkType) (bpfprog.Program, error) {
	return program(s.cfg.Filters[lt], lt, s.rec.snapLen())
}
