package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/recording"
)

// Run implements Capture.
func (s *session) Run(ctx context.Context) Result {
	stop := context.AfterFunc(ctx, s.interrupt)
	defer stop()
	err := errors.Join(s.loop(ctx), s.finish())
	s.rec.Publish()
	path := s.rec.Path()
	err = errors.Join(err, s.Close())
	reason, cause := s.rec.End()
	switch {
	case cause != nil:
	case disk.IsFull(err):
		reason = recording.DiskFull
	case err != nil:
		reason = recording.Error
	case reason == "":
		reason = recording.ReasonOf(ctx)
	}
	return Result{Reason: reason, Account: s.Account(), Path: path, Err: errors.Join(cause, err)}
}

func (s *session) interrupt() {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.wake >= 0 {
		// One increment cannot overflow the counter, and there is no other error with an open eventfd.
		_, _ = unix.Write(s.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// loop reads packets until ctx ends or packets are no longer written.
func (s *session) loop(ctx context.Context) error {
	flushed := backend.Now(unix.CLOCK_MONOTONIC)
	checked := flushed
	for ctx.Err() == nil && !s.rec.Ended() {
		wait, err := s.backend.Read()
		if err != nil {
			return err
		}
		if s.cfg.Followed() {
			wait = s.serve(wait)
		}
		if err := s.wait(wait); err != nil {
			return err
		}
		if t := backend.Now(unix.CLOCK_MONOTONIC); t-flushed >= uint64(backend.Interval) {
			flushed = t
			if t-checked >= uint64(backend.CheckInterval) {
				checked = t
				s.checkNext(maxChecks)
			}
			s.restore()
			if err := s.backend.CountLost(); err != nil {
				return err
			}
			s.rec.Flush()
		}
		s.backend.Reap()
	}
	return nil
}

// wait sleeps until there is something to read, an interface changes or the context ends, at most for timeout. It handles
// changes of interfaces.
func (s *session) wait(timeout time.Duration) error {
	events, err := s.poll.wait(timeout)
	if err != nil {
		return err
	}
	for _, ev := range events {
		if int(ev.Fd) == s.links.FD() {
			if err := s.readLinks(); err != nil {
				return err
			}
		} else if ev.Events&unix.EPOLLERR != 0 {
			s.backend.HandleError(int(ev.Fd))
		}
	}
	return nil
}

func (s *session) readLinks() error {
	changed, done, err := s.links.Read()
	if err != nil {
		return err
	}
	for i := range changed {
		if err := s.linkChanged(&changed[i]); err != nil {
			return err
		}
	}
	if done {
		if err := s.listed(); err != nil {
			return err
		}
	}
	// The recorder keeps the accounts of the sources that are removed here.
	s.sources = slices.DeleteFunc(s.sources, func(src *source) bool { return src.stopped && !src.late })
	if len(changed) > 0 || done {
		s.rec.Publish()
	}
	return nil
}

// lastLinks bounds the reading of changes at the end.
const lastLinks = time.Second

// readLastLinks reads the changes that have already happened, which are part of the account. A target can make them without end.
func (s *session) readLastLinks() error {
	ready := []unix.PollFd{{Fd: int32(s.links.FD()), Events: unix.POLLIN}}
	for end := time.Now().Add(lastLinks); ; {
		n, err := unix.Poll(ready, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("wait for interface changes: %w", err)
		case n == 0 && !s.links.Listing():
			return nil
		case time.Now().After(end):
			for _, src := range s.sources {
				src.iface.Account.Miss(at("too many changes of interfaces to know whether it was captured until the end"))
			}
			return nil
		}
		if err := s.readLinks(); err != nil {
			return err
		}
	}
}

// finish ends the arrival of packets, reads the remaining ones, and writes the statistics.
func (s *session) finish() error {
	errs := []error{s.readLastLinks()}
	s.checkNext(len(s.sources))
	s.restore()
	errs = append(errs, s.backend.Shut()) // all interfaces at the same time: the capture ends here
	for _, src := range s.sources {
		if !src.stopped {
			errs = append(errs, src.stop())
		}
	}
	errs = append(errs, s.poll.remove(s.wake), s.poll.remove(s.links.FD()), s.drain(), s.rec.Finish())
	return errors.Join(errs...)
}

// drain reads the remaining packets of stopped interfaces.
func (s *session) drain() error {
	for {
		wait, err := s.backend.Read()
		if err != nil {
			return err
		}
		if s.backend.Reap(); s.backend.Sources() == 0 {
			return nil
		}
		if err := s.wait(min(wait, backend.Interval)); err != nil {
			return err
		}
	}
}
