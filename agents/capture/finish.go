package capture

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// finish ends the arrival of packets, takes everything that is still in the rings, and writes the statistics.
func (c *afCapture) finish() error {
	var errs []error
	for _, s := range c.sources {
		if s.ring != nil && !s.parked {
			errs = append(errs, s.ring.reject()) // all of them first: this is the capture's end
		}
	}
	for _, s := range c.sources {
		if s.ring != nil && !s.parked {
			errs = append(errs, s.park())
		}
	}
	errs = append(errs, c.ignore(c.wake), c.ignore(c.links.fd), c.drain(), c.rec.finish())
	return errors.Join(errs...)
}

// ignore takes a descriptor out of what wait waits for.
func (c *afCapture) ignore(fd int) error {
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_DEL, fd, nil); err != nil {
		return fmt.Errorf("remove from epoll: %w", err)
	}
	return nil
}

// drain takes what is left in parked rings. The kernel retires a block that is not full by timer, so that this takes
// up to two retire times.
func (c *afCapture) drain() error {
	for {
		n := 0
		for s, block := c.oldest(); s != nil; s, block = c.oldest() {
			c.take(s, block)
			s.ring.release()
			n++
		}
		if c.closeDrained() {
			return nil
		}
		if n > 0 {
			continue
		}
		if err := c.wait(retireMillis); err != nil {
			return err
		}
	}
}

// closeDrained closes the rings that are parked and empty, or that have not moved for drainTimeout; what the kernel
// then still owes counts as dropped by it. It returns whether no ring is left.
func (c *afCapture) closeDrained() bool {
	all := true
	for _, s := range c.sources {
		if s.ring == nil {
			continue
		}
		if !s.parked {
			all = false
			continue
		}
		if !s.drained() && !s.stuck(now(unix.CLOCK_MONOTONIC)) {
			all = false
			continue
		}
		if s.accepted > s.walked {
			s.lose(s.accepted-s.walked, &s.acct.DroppedKernel)
		}
		c.closeRing(s)
		c.rec.publishTrack(s.track)
	}
	return all
}

func (c *afCapture) closeRing(s *source) {
	if err := s.ring.close(); err != nil {
		c.log.Warn("Closing packet socket failed", "interface", s.acct.Name, "error", err)
	}
	s.ring = nil
}

// stuck tells whether a parked ring has given nothing for drainTimeout.
func (s *source) stuck(t uint64) bool {
	if s.idle == 0 || s.progress != s.walked {
		s.idle, s.progress = t, s.walked
	}
	return t-s.idle > drainTimeout
}

// Close lets go of everything that is open; the file stays.
func (c *afCapture) Close() error {
	for _, s := range c.sources {
		if s.ring != nil {
			c.closeRing(s)
		}
	}
	var errs []error
	if c.links != nil {
		errs = append(errs, c.links.close())
		c.links = nil
	}
	c.closing.Lock() // interrupt may be under way
	defer c.closing.Unlock()
	for _, fd := range []*int{&c.epoll, &c.wake, &c.netns} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	errs = append(errs, c.rec.close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close capture: %w", err)
	}
	return nil
}
