// Package follow merges the growing files of all Pods of a capture into one stream of packets in the order of time.
//
// A packet leaves when all Pods have sent what they captured up to its time, and at the latest when it has waited for Delay: earlier
// packets of other Pods go first. Pods may join at any time. The stream has one section, an interface for each interface of each Pod, and
// statistics at its end.
package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/podstreams"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// DefaultDelay of a packet.
	DefaultDelay = time.Second
	// maxBuffered is how many bytes of packets wait at most. Above it, the oldest leave early, until keptBuffered bytes are left.
	maxBuffered = 12 << 20
	// keptBuffered is 0.18 s of 50 MB/s. Above it, only Pods that are behind the others add packets. The others stay in step: the keepers
	// have their packets in files. A packet leaves when each Pod has sent a newer one.
	keptBuffered = 9 << 20
	// relievedBuffered bytes are left at a tick if Pods wait for one that has sent nothing during patience ticks.
	relievedBuffered = 4 << 20
	patience         = 4
	// tick is how often packets leave.
	tick = 50 * time.Millisecond
	// drainTime is how long Finish waits while nothing is read or written, and maxDrain how long at most, unless the stream is complete.
	drainTime  = 10 * time.Second
	maxDrain   = time.Minute
	lastWrite  = 2 * time.Second
	fileSuffix = ".pcapng"
)

// ErrReaderEnded says that the reader of the stream has ended, as head does.
var ErrReaderEnded = errors.New("the reader of the stream has ended")

// Options of a Stream.
type Options struct {
	// Blocks copies the blocks of a Pod's file until its capture has ended (results.Client.LiveBlocks). With newest it may leave out packets.
	Blocks func(ctx context.Context, podUID, file string, newest bool, to results.BlockSink) error
	Out    io.Writer
	// FromStart says that the stream began with the capture, so no packet is from before the stream.
	FromStart bool
	// Complete leaves nothing out, however slow Out is. Finish then waits for all packets.
	Complete bool
	// Delay of a packet at most; zero is DefaultDelay.
	Delay time.Duration
	// Comment of the section, and Application that writes it.
	Comment, Application string
	// OnWriteError, if not nil, is called once when Out fails, or when the cluster cannot send a ring of files. Finish then returns
	// ErrReaderEnded, or why else it failed.
	OnWriteError func()
}

// Result counts what a stream had.
type Result struct {
	Pods    int
	Packets uint64
	// Bytes written.
	Bytes int64
	// Read packets, by the UID of their Pod. A Pod whose stream began is in it.
	Read map[string]int64
	// Gone has the UIDs of Pods whose file was gone before their stream began. They count neither in Pods nor in Read.
	Gone map[string]bool
	// LeftOut has the packets that these streams have left out and counted, by the UID of their Pod.
	LeftOut map[string]int64
	// Packets that are in the files, but not in the stream: Skipped because its reader was slow, Waited because their Pod waited for its
	// place or a connection, Earlier because they were captured before the stream began.
	Skipped, Waited, Earlier uint64
	// Hung says that the reader had not taken the last batch of packets for lastWrite when it ended: it may have missed these and later ones.
	Hung bool
	// Abandoned says that the last packets did not come in time.
	Abandoned bool
	// Late packets came too late for their place in the order of time.
	Late uint64
}

// Stream merges one capture. New starts it, and Finish ends it.
type Stream struct {
	o       Options
	pods    *podstreams.Group
	cancel  context.CancelFunc
	full    chan struct{} // the queue has no room
	due     chan struct{} // packets may leave before the next tick
	stop    chan struct{} // no more packets will come
	written chan struct{} // closed when all is written

	mu       sync.Mutex
	room     *sync.Cond // signals that packets have left, or that a Pod waits
	waiting  int        // Pods that wait for room
	queue    queue
	sources  sources
	control  []byte // blocks that go out before the next packets
	names    []byte // blocks that wait for the first interface
	stats    []*pcapng.Statistics
	read     []uint64          // packets of the stream, by interface
	lost     map[uint32]uint64 // packets that were skipped, by the first interface of their Pod
	last     uint64            // time of the last packet that left
	reached  uint64            // time that all Pods had reached at the last tick
	stalled  int               // ticks since they reached it, while Pods waited
	activity uint64            // grows with each packet and each write
	writing  bool              // waits for the reader of Out
	result   Result
	err      error // of writing
}

// New returns a Stream, and writes the beginning of the section.
func New(ctx context.Context, o Options) *Stream {
	if o.Delay <= 0 {
		o.Delay = DefaultDelay
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{o: o, cancel: cancel, full: make(chan struct{}, 1), due: make(chan struct{}, 1), stop: make(chan struct{}), written: make(chan struct{}), lost: map[uint32]uint64{}}
	s.result.Read = map[string]int64{}
	s.sources = newSources(time.Now().Add(min(o.Delay, DefaultDelay)))
	s.room = sync.NewCond(&s.mu)
	s.pods = podstreams.New(ctx, podstreams.Options{Suffix: fileSuffix, Read: s.readPod})
	section := pcapng.Section{Application: o.Application}
	if o.Comment != "" {
		section.Comments = []string{o.Comment}
	}
	s.control = pcapng.AppendSection(nil, &section)
	context.AfterFunc(ctx, s.wake)
	go s.write()
	return s
}

// wake lets those that wait for room see that the stream ends.
func (s *Stream) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.Broadcast()
}

// Update adds a Pod once the name of its file is known.
func (s *Stream) Update(u results.Update) {
	s.mu.Lock()
	s.sources.update(&u)
	s.mu.Unlock()
	s.pods.Update(u)
}

// AddNames writes names of addresses before the next packets, and behind the first interface: editcap and mergecap 4.0 refuse other files.
func (s *Stream) AddNames(n *pcapng.Names) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = pcapng.AppendNames(s.names, n)
	s.addNames()
}

// addNames lets the names go out once there is an interface. The caller holds the lock.
func (s *Stream) addNames() {
	if len(s.stats) > 0 {
		s.control, s.names = append(s.control, s.names...), nil
	}
}

// Finish waits for the last packets of a capture that has ended, or returns soon if ctx has ended. It writes the end of the stream.
func (s *Stream) Finish(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.cancelWhenIdle(ctx, cancel)
	context.AfterFunc(ctx, func() {
		s.pods.Stop()
		s.wake()
	})
	err := s.pods.Drain(ctx)
	close(s.stop)
	select {
	case <-s.written:
	case <-ctx.Done():
		s.awaitLastWrite()
	}
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Pods = s.pods.Pods() - len(s.result.Gone)
	r := s.result
	r.Read, r.LeftOut, r.Gone = maps.Clone(r.Read), maps.Clone(r.LeftOut), maps.Clone(r.Gone) // a write may still hang
	return r, cmp.Or(s.err, err)
}

// awaitLastWrite waits shortly for what is left, because an interrupt does not stop the reader.
func (s *Stream) awaitLastWrite() {
	select {
	case <-s.written:
	case <-time.After(lastWrite):
		s.fail(errors.New("write packets: the program that reads the stream does not take the last packets: end it"))
	}
}

// cancelWhenIdle ends the wait of Finish when for some time nothing was read or written, or when too long has passed. A complete stream
// waits for its reader for ever, as any program does that writes to a pipe.
func (s *Stream) cancelWhenIdle(ctx context.Context, cancel context.CancelFunc) {
	const step = drainTime / 20
	last, idle := uint64(0), time.Duration(0)
	for waited := time.Duration(0); idle < drainTime && (s.o.Complete || waited < maxDrain); waited += step {
		select {
		case <-time.After(step):
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		if now := s.activity; now != last || s.o.Complete && s.writing {
			last, idle = now, 0
		} else {
			idle += step
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.result.Abandoned = true
	s.mu.Unlock()
	cancel()
}

// fail keeps the first error.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// write writes packets as they become due, until the end.
func (s *Stream) write() {
	defer close(s.written)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	buf := make([]byte, 0, batch+batch/4) // a last packet of usual size does not make it grow
	for last := false; !last; {
		ticked := false
		select {
		case <-ticks.C:
			ticked = true
		case <-s.full:
		case <-s.due:
		case <-s.stop:
			last = true
		}
		for {
			var more bool
			buf, more = s.take(buf[:0], time.Now(), ticked, last)
			ticked = false
			if len(buf) > 0 && !s.send(buf) {
				return
			}
			if !more {
				break
			}
		}
	}
}

// batch is how many bytes leave at once. A larger one saves no time, because a pipe holds 64 KiB.
const batch = 256 << 10

// take appends what is due, and reports whether there is more. At the end all is due, and the statistics follow.
func (s *Stream) take(buf []byte, now time.Time, ticked, last bool) (out []byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf, s.control = append(buf, s.control...), s.control[:0]
	s.queue.advance(now.Add(-s.o.Delay), last)
	s.queue.complete = s.sources.complete(now)
	reached := s.sources.reached()
	if s.queue.Bytes() > keptBuffered {
		s.queue.complete = max(s.queue.complete, reached)
	}
	switch {
	case s.waiting == 0 || s.queue.leads():
	case s.queue.Bytes() > maxBuffered:
		s.queue.shrink(keptBuffered)
	case ticked && s.stalled >= patience:
		s.queue.shrink(relievedBuffered)
	}
	if ticked {
		s.noteProgress(reached)
	}
	buf = s.appendPackets(buf)
	if len(buf) > 0 {
		s.room.Broadcast()
	}
	if s.queue.leads() {
		return buf, true
	}
	if last {
		buf = s.appendStatistics(buf)
	}
	return buf, false
}

// noteProgress counts the ticks for which Pods have waited for others that sent nothing. The caller holds the lock.
func (s *Stream) noteProgress(reached uint64) {
	s.stalled++
	if s.waiting == 0 || reached != s.reached {
		s.reached, s.stalled = reached, 0
	}
}

// appendPackets appends the packets that may leave, up to a batch.
func (s *Stream) appendPackets(buf []byte) []byte {
	for len(buf) < batch && s.queue.leads() {
		at, block := s.queue.Pop()
		if at < s.last {
			s.result.Late++
		}
		s.last = max(s.last, at)
		s.result.Packets++
		buf = append(buf, block...)
	}
	return buf
}

// appendStatistics appends the last counts of each interface. They are about the stream, and not the file: it delivered what it has, and
// what it has skipped counts as dropped. Packets from before the stream passed the filter, and were neither delivered nor dropped.
func (s *Stream) appendStatistics(buf []byte) []byte {
	for n, st := range s.stats {
		lost := s.lost[uint32(n)]
		if st == nil {
			if lost == 0 {
				continue
			}
			st = &pcapng.Statistics{Interface: uint32(n), Time: s.last}
		}
		if lost > 0 {
			if st.IfDrop != nil {
				lost += *st.IfDrop
			}
			st.IfDrop = &lost
		}
		st.Delivered = &s.read[n]
		buf = pcapng.AppendStatistics(buf, st)
	}
	return buf
}

// send writes to the output. When that fails, nothing more is read.
func (s *Stream) send(b []byte) bool {
	began := time.Now()
	s.setWriting(true)
	n, err := s.o.Out.Write(b)
	s.setWriting(false)
	s.mu.Lock()
	s.result.Hung = err != nil && time.Since(began) >= lastWrite
	s.activity++
	s.result.Bytes += int64(n)
	s.mu.Unlock()
	if err == nil {
		return true
	}
	if ReaderEnded(err) {
		err = fmt.Errorf("%w: %w", ErrReaderEnded, err)
	}
	s.fail(fmt.Errorf("write packets: %w", err))
	s.cancel()
	if s.o.OnWriteError != nil {
		s.o.OnWriteError()
	}
	return false
}

// setWriting notes whether the stream waits for its reader.
func (s *Stream) setWriting(writing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = writing
}
