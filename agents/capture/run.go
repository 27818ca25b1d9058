package capture

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
)

// pollEvery is how often the kernel's counters are read, and what waits to be written is written, while packets come.
const pollEvery = 100 * time.Millisecond

// isQuiet reports whether no packet has come for so long that all is written, by the monotonic clock.
func isQuiet(came, now uint64) bool { return now-came >= uint64(2*pollEvery) }

func (s *session) Run(ctx context.Context) Result {
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	err := errors.Join(s.loop(ctx), s.finish())
	s.rec.publish()
	path := s.rec.current().path
	err = errors.Join(err, s.Close())
	reason := s.rec.end.reason
	switch {
	case s.rec.end.err != nil:
	case disk.IsFull(err):
		reason = recording.DiskFull
	case err != nil:
		reason = recording.Error
	case reason == "":
		reason = recording.ReasonOf(ctx)
	}
	return Result{Reason: reason, Account: s.Account(), Path: path, Err: errors.Join(s.rec.end.err, err)}
}

func (s *session) interrupt() {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.wake >= 0 {
		// One increment cannot overflow the counter, and there is no other error with an open eventfd.
		_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// loop moves packets until ctx ends or nothing more can be written.
func (s *session) loop(ctx context.Context) error {
	polled := now(unix.CLOCK_MONOTONIC)
	for ctx.Err() == nil && !s.rec.over() {
		pause, err := s.taker.pass()
		if err != nil {
			return err
		}
		if err := s.wait(pause); err != nil {
			return err
		}
		if t := now(unix.CLOCK_MONOTONIC); t-polled >= uint64(pollEvery) {
			polled = t
			if err := s.taker.poll(); err != nil {
				return err
			}
			s.rec.settle()
		}
		s.taker.settle()
	}
	return nil
}

// wait sleeps until there is something to read, an interface changes or the context ends, at most for so long, and takes
// note of changes.
func (s *session) wait(most time.Duration) error {
	events, err := s.waits.wait(most)
	if err != nil {
		return err
	}
	for _, ev := range events {
		if int(ev.Fd) == s.links.fd {
			if err := s.readLinks(); err != nil {
				return err
			}
		} else if ev.Events&unix.EPOLLERR != 0 {
			s.taker.failed(int(ev.Fd))
		}
	}
	return nil
}

func (s *session) readLinks() error {
	links, _, err := s.links.read()
	if err != nil {
		return err
	}
	for i := range links {
		if err := s.linkChanged(&links[i]); err != nil {
			return err
		}
	}
	if len(links) > 0 {
		s.rec.publish()
	}
	return nil
}

// finish ends the arrival of packets, takes everything that is still on the way, and writes the statistics.
func (s *session) finish() error {
	errs := []error{s.taker.refuse()} // all interfaces at once: this is the capture's end
	for _, t := range s.tapped {
		if !t.parked {
			errs = append(errs, t.park())
		}
	}
	errs = append(errs, s.waits.remove(s.wake), s.waits.remove(s.links.fd), s.drain(), s.rec.finish())
	return errors.Join(errs...)
}

// drain takes what is left where interfaces are parked.
func (s *session) drain() error {
	for {
		pause, err := s.taker.pass()
		if err != nil {
			return err
		}
		if s.taker.settle(); s.taker.taps() == 0 {
			return nil
		}
		if err := s.wait(min(pause, pollEvery)); err != nil {
			return err
		}
	}
}
