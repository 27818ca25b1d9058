package capture

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/disk"
	"github.com/sonde-operator/sonde/agents/ending"
)

const (
	// waitMillis is the longest wait without anything to do; the kernel's counters are read at least this often.
	waitMillis = 100
	// passBlocks is how many ring blocks are written before anything else is looked at.
	passBlocks = 16
	// drainTimeout is how long a parked ring may take to hand over its last block, which the kernel retires by timer.
	drainTimeout = uint64(5 * time.Second)
)

func (c *afCapture) Run(ctx context.Context) Result {
	stop := context.AfterFunc(ctx, c.interrupt)
	defer stop()
	err := errors.Join(c.loop(ctx), c.finish())
	c.rec.publish()
	path := c.rec.current().path
	err = errors.Join(err, c.Close())
	reason := c.rec.end.reason
	switch {
	case c.rec.end.err != nil:
	case disk.IsFull(err):
		reason = ending.DiskFull
	case err != nil:
		reason = ending.Error
	case reason == "":
		reason = ending.Of(ctx)
	}
	return Result{Reason: reason, Account: c.Account(), Path: path, Err: errors.Join(c.rec.end.err, err)}
}

func (c *afCapture) interrupt() {
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.wake >= 0 {
		// One increment cannot overflow the counter, and there is no other error with an open eventfd.
		_, _ = unix.Write(c.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// loop moves packets until ctx ends or nothing more can be written.
func (c *afCapture) loop(ctx context.Context) error {
	polled := now(unix.CLOCK_MONOTONIC)
	for ctx.Err() == nil && !c.rec.over() {
		n := c.pass()
		timeout := waitMillis
		if n > 0 {
			timeout = 0
		}
		if err := c.wait(timeout); err != nil {
			return err
		}
		if t := now(unix.CLOCK_MONOTONIC); t-polled >= waitMillis*uint64(time.Millisecond) {
			polled = t
			if err := c.pollAll(); err != nil {
				return err
			}
		}
		c.closeDrained()
	}
	return nil
}

// pass takes up to passBlocks blocks, each time the one with the oldest packets, so that the file is in time order but
// for what the kernel has not handed over yet (two retire times). It returns how many blocks it took.
func (c *afCapture) pass() int {
	for n := range passBlocks {
		s, block := c.oldest()
		if s == nil {
			return n
		}
		c.take(s, block)
		s.ring.release()
		if c.rec.over() {
			return n + 1
		}
	}
	return passBlocks
}

func (c *afCapture) oldest() (*source, []byte) {
	var (
		first  uint64
		oldest *source
		block  []byte
	)
	for _, s := range c.sources {
		if s.ring == nil {
			continue
		}
		b := s.ring.ready()
		if b == nil {
			continue
		}
		if t := firstTime(b); oldest == nil || t < first {
			first, oldest, block = t, s, b
		}
	}
	return oldest, block
}

// take hands the packets of one block to the recorder.
func (c *afCapture) take(s *source, block []byte) {
	n := uint64(blockHeader(block).Num_pkts)
	s.walked += n
	if c.rec.over() {
		c.rec.refuse(s.track, n)
	} else {
		s.lose(s.enc.encode(block, &c.batch), &s.acct.DroppedKernel)
		c.rec.write(s.track, &c.batch)
	}
	c.rec.publishTrack(s.track)
}

// wait sleeps until a ring block, an interface change or the end of the context, and takes note of changes.
func (c *afCapture) wait(millis int) error {
	var events [16]unix.EpollEvent
	n, err := unix.EpollWait(c.epoll, events[:], millis)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for packets: %w", err)
	}
	for _, ev := range events[:max(n, 0)] {
		if int(ev.Fd) == c.links.fd {
			if err := c.readLinks(); err != nil {
				return err
			}
		} else if ev.Events&unix.EPOLLERR != 0 {
			c.clearError(int(ev.Fd))
		}
	}
	return nil
}

func (c *afCapture) readLinks() error {
	links, _, err := c.links.read()
	if err != nil {
		return err
	}
	for i := range links {
		if err := c.linkChanged(&links[i]); err != nil {
			return err
		}
	}
	if len(links) > 0 {
		c.rec.publish()
	}
	return nil
}

// clearError takes note of an interface that went down. Its socket attaches again by itself when it comes up; if it
// is deleted, the link watch says so.
func (c *afCapture) clearError(fd int) {
	for _, s := range c.sources {
		if s.ring == nil || s.ring.fd != fd {
			continue
		}
		if err := s.ring.sockErr(); err != nil {
			c.log.Info("Interface reports an error", "interface", s.acct.Name, "error", err)
		}
	}
}

func (c *afCapture) pollAll() error {
	for _, s := range c.sources {
		if s.ring == nil || s.parked {
			continue
		}
		if err := s.poll(); err != nil {
			return err
		}
		c.rec.publishTrack(s.track)
	}
	return nil
}
