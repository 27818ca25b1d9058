// Package follow merges the growing files of all Pods of a capture into one stream of packets in the order of time.
//
// A packet leaves after it has waited for Delay, so that packets of other Pods which arrive later can still go first. Pods may join at
// any time. The stream has one section, an interface for each interface of each Pod, and statistics at its end.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// DefaultDelay of a packet.
	DefaultDelay = time.Second
	// maxBuffered is how many bytes of packets wait at most. Above it, packets leave early.
	maxBuffered = 32 << 20
	// tick is how often packets leave.
	tick = 50 * time.Millisecond
	// drainTime is how long Finish waits for the last packets.
	drainTime  = 10 * time.Second
	fileSuffix = ".pcapng"
)

// Options of a Stream.
type Options struct {
	// Blocks copies the blocks of a Pod's file to w until its capture has ended (results.Client.LiveBlocks).
	Blocks func(ctx context.Context, podUID, file string, onGap func(packets uint64), w io.Writer) error
	Out    io.Writer
	// Delay of a packet; zero is DefaultDelay.
	Delay time.Duration
	// Comment of the section, and Application that writes it.
	Comment, Application string
	// OnWriteError, if not nil, is called once when Out fails: its reader has ended.
	OnWriteError func()
}

// Result counts what a stream had.
type Result struct {
	Pods    int
	Packets uint64
	// Skipped packets are in the files, but not in the stream, because its reader was slow. Earlier ones are those from before the
	// stream began.
	Skipped, Earlier uint64
	// Late packets came too late for their place in the order of time.
	Late uint64
}

// Stream merges one capture. New starts it, and Finish ends it.
type Stream struct {
	o       Options
	ctx     context.Context //nolint:containedctx // of the streams of all Pods, which begin as Pods join
	cancel  context.CancelFunc
	pods    sync.WaitGroup
	stop    chan struct{} // no more packets will come
	written chan struct{} // closed when all is written

	mu       sync.Mutex
	room     *sync.Cond // signals that packets have left
	followed map[string]bool
	queue    queue
	control  []byte // blocks that go out before the next packets
	stats    []*pcapng.Statistics
	lost     map[uint32]uint64 // packets that were skipped, by the first interface of their Pod
	last     uint64            // time of the last packet that left
	result   Result
	err      error // the first one
}

// New returns a Stream, and writes the beginning of the section.
func New(ctx context.Context, o Options) *Stream {
	if o.Delay <= 0 {
		o.Delay = DefaultDelay
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Stream{o: o, ctx: ctx, cancel: cancel, stop: make(chan struct{}), written: make(chan struct{}), followed: map[string]bool{}, lost: map[uint32]uint64{}}
	s.room = sync.NewCond(&s.mu)
	section := pcapng.Section{Application: o.Application}
	if o.Comment != "" {
		section.Comments = []string{o.Comment}
	}
	s.control = pcapng.AppendSection(nil, &section)
	context.AfterFunc(ctx, s.room.Broadcast)
	go s.write()
	return s
}

// Update adds a Pod once the name of its file is known.
func (s *Stream) Update(u results.Update) {
	if u.Account == nil {
		return
	}
	for _, f := range u.Account.Files {
		if !strings.HasSuffix(f.Name, fileSuffix) {
			continue
		}
		s.mu.Lock()
		known := s.followed[u.UID]
		s.followed[u.UID] = true
		s.mu.Unlock()
		if !known {
			s.pods.Go(func() { s.read(u.UID, f.Name) })
		}
		return
	}
}

// AddNames writes names of addresses before the next packets.
func (s *Stream) AddNames(n *pcapng.Names) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.control = pcapng.AppendNames(s.control, n)
}

// Finish waits for the last packets of a capture that has ended, or returns soon if ctx has ended. It writes the end of the stream.
func (s *Stream) Finish(ctx context.Context) (Result, error) {
	drained := make(chan struct{})
	go func() {
		s.pods.Wait()
		close(drained)
	}()
	wait, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	select {
	case <-drained:
	case <-wait.Done():
	}
	s.cancel()
	<-drained
	close(s.stop)
	late := time.NewTimer(drainTime)
	defer late.Stop()
	select {
	case <-s.written:
	case <-late.C:
		s.fail(errors.New("write packets: the reader of the stream takes none"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Pods = len(s.followed)
	return s.result, s.err
}

// read reads the stream of one Pod.
func (s *Stream) read(podUID, file string) {
	p := &pod{stream: s}
	r, w := io.Pipe()
	go func() {
		_ = w.CloseWithError(s.o.Blocks(s.ctx, podUID, file, p.gap, beginning{w, p})) // nil makes it io.EOF
	}()
	err := p.read(pcapng.NewReader(r))
	_ = r.CloseWithError(err)
	if err != nil && s.ctx.Err() == nil {
		s.fail(fmt.Errorf("follow %s: %w", file, err))
	}
}

// fail keeps the first error.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// pod is the state of one Pod's stream.
type pod struct {
	stream *Stream
	// numbers of its interfaces in the stream.
	numbers []uint32
	began   bool // a packet was sent
	// missed packets from before the Pod has an interface.
	missed uint64
}

func (p *pod) read(r *pcapng.Reader) error {
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.accept(b); err != nil {
			return err
		}
	}
}

func (p *pod) accept(b pcapng.Block) error {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	switch b := b.(type) {
	case *pcapng.Interface:
		p.numbers = append(p.numbers, uint32(len(s.stats)))
		s.stats = append(s.stats, nil)
		s.control = pcapng.AppendInterface(s.control, b)
		s.lost[p.numbers[0]] += p.missed
		p.missed = 0
	case *pcapng.Packet:
		for s.queue.bytes > maxBuffered && s.ctx.Err() == nil {
			s.room.Wait()
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		b.Interface = p.numbers[b.Interface]
		s.queue.push(b, time.Now())
	case *pcapng.Statistics:
		b.Interface = p.numbers[b.Interface]
		s.stats[b.Interface] = b
	}
	return nil
}

// beginning notes the first packet: gaps after it are losses of the stream.
type beginning struct {
	io.Writer

	p *pod
}

// Write implements io.Writer. It gets whole blocks.
func (w beginning) Write(b []byte) (int, error) {
	if len(b) >= pcapng.PacketHeaderLen && pcapng.PacketHeaderOf(b).IsPacket() {
		w.p.stream.mu.Lock()
		w.p.began = true
		w.p.stream.mu.Unlock()
	}
	return w.Writer.Write(b)
}

// gap counts packets that were skipped.
func (p *pod) gap(packets uint64) {
	s := p.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !p.began:
		s.result.Earlier += packets
	case len(p.numbers) == 0:
		p.missed += packets
		s.result.Skipped += packets
	default:
		s.lost[p.numbers[0]] += packets
		s.result.Skipped += packets
	}
}

// write writes packets as they become due, until the end.
func (s *Stream) write() {
	defer close(s.written)
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	var buf []byte
	for last := false; !last; {
		select {
		case <-ticks.C:
		case <-s.stop:
			last = true
		}
		for {
			var more bool
			buf, more = s.take(buf[:0], time.Now(), last)
			if len(buf) > 0 && !s.send(buf) {
				return
			}
			if !more {
				break
			}
		}
	}
}

// batch is how many bytes leave at once.
const batch = 1 << 20

// take appends what is due, and reports whether there is more. At the end all is due, and the statistics follow.
func (s *Stream) take(buf []byte, now time.Time, last bool) (out []byte, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf, s.control = append(buf, s.control...), s.control[:0]
	s.queue.advance(now.Add(-s.o.Delay), maxBuffered/2, last)
	for len(buf) < batch && s.queue.leads() {
		p := s.queue.pop()
		if p.Time < s.last {
			s.result.Late++
		}
		s.last = max(s.last, p.Time)
		s.result.Packets++
		buf = pcapng.AppendPacket(buf, &p.Packet)
	}
	s.room.Broadcast()
	if s.queue.leads() {
		return buf, true
	}
	if last {
		buf = s.appendStatistics(buf)
	}
	return buf, false
}

// appendStatistics appends the last counts of each interface. What the stream has skipped counts as dropped.
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
		buf = pcapng.AppendStatistics(buf, st)
	}
	return buf
}

// send writes to the output. When that fails, nothing more is read.
func (s *Stream) send(b []byte) bool {
	if _, err := s.o.Out.Write(b); err != nil {
		s.fail(fmt.Errorf("write packets: %w", err))
		s.cancel()
		if s.o.OnWriteError != nil {
			s.o.OnWriteError()
		}
		return false
	}
	return true
}
