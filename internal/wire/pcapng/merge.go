package pcapng

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds of the reorder buffer of each source, see MergeOptions.
const (
	DefaultWindow      = time.Second
	DefaultMaxPackets  = 1 << 20
	DefaultMaxBuffered = 64 << 20
)

// MergeOptions bound the buffer that sorts the packets of one source. A capture of several interfaces or CPUs is out of
// order by some tenths of a second, because the kernel hands over each ring's packets in blocks. A packet leaves the buffer
// when Window of the source's time, MaxPackets or MaxBuffered bytes were read after it. Zero values mean the defaults.
type MergeOptions struct {
	Window      time.Duration
	MaxPackets  int
	MaxBuffered int
	// Application is the result's shb_userappl; if empty, the first source's.
	Application string
	// Names, if not nil, are the result's names of addresses. Names in the sources are left out.
	Names *Names
}

// MergeResult is the outcome of a merge.
type MergeResult struct {
	Packets uint64
	// Late counts packets that were out of order by more than the bounds. The result has them at a later place than their
	// time; zero means that it is in strict time order.
	Late uint64
	// Truncated holds the indexes of sources that ended within a block; all their complete blocks are in the result.
	Truncated []int
}

// Merge writes the packets of all sources to w as one section in time order. Interfaces keep their names, descriptions and
// filters and get new numbers; the last statistics of each are at the end; the comments of each source's section become one
// comment. A source may be a Sequence.
func Merge(w io.Writer, sources []io.Reader, opts MergeOptions) (MergeResult, error) {
	m := &merger{w: bufio.NewWriterSize(w, 1<<20), opts: opts.withDefaults()}
	for i, r := range sources {
		m.sources = append(m.sources, newMergeSource(i, r))
	}
	if err := m.run(); err != nil {
		return m.result, err
	}
	if err := m.w.Flush(); err != nil {
		return m.result, fmt.Errorf("write merged capture: %w", err)
	}
	return m.result, nil
}

func (o MergeOptions) withDefaults() MergeOptions {
	if o.Window <= 0 {
		o.Window = DefaultWindow
	}
	if o.MaxPackets <= 0 {
		o.MaxPackets = DefaultMaxPackets
	}
	if o.MaxBuffered <= 0 {
		o.MaxBuffered = DefaultMaxBuffered
	}
	return o
}

type merger struct {
	w       *bufio.Writer
	opts    MergeOptions
	sources []*mergeSource
	ifaces  uint32        // described in the result so far
	stats   []*Statistics // by interface of the result
	buf     []byte
	last    uint64 // time of the last packet written
	result  MergeResult
}

func (m *merger) run() error {
	if err := m.header(); err != nil {
		return err
	}
	for {
		s, err := m.next()
		if err != nil {
			return err
		}
		if s == nil {
			return m.trailer()
		}
		at, block := s.queue.Pop()
		if at < m.last {
			m.result.Late++
		}
		m.last = max(m.last, at)
		m.result.Packets++
		if err := m.write(block); err != nil {
			return err
		}
	}
}

// header reads the first section of every source and writes one for all.
func (m *merger) header() error {
	out := Section{Application: m.opts.Application}
	for i, s := range m.sources {
		b, err := s.r.Next()
		if err != nil && !m.sourceEnded(s, err) {
			return fmt.Errorf("read capture %d: %w", s.index, err)
		}
		sec, ok := b.(*Section)
		if !ok {
			continue // an empty source
		}
		if i == 0 {
			out.Hardware, out.OS = sec.Hardware, sec.OS
			if out.Application == "" {
				out.Application = sec.Application
			}
		}
		if len(sec.Comments) > 0 {
			out.Comments = append(out.Comments, strings.Join(sec.Comments, "\n"))
		}
		s.comments = sec.Comments
	}
	m.buf = AppendSection(m.buf[:0], &out)
	return m.write(m.buf)
}

// next returns the source with the earliest packet; nil when all have ended.
func (m *merger) next() (*mergeSource, error) {
	var first *mergeSource
	var earliest uint64
	for _, s := range m.sources {
		if err := m.fill(s); err != nil {
			return nil, err
		}
		if at, ok := s.queue.First(); ok && (first == nil || at < earliest) {
			first, earliest = s, at
		}
	}
	return first, nil
}

// fill reads until the source's earliest packet may leave.
func (m *merger) fill(s *mergeSource) error {
	for !s.ended && !m.full(s) {
		b, err := s.r.Next()
		if err != nil {
			if !m.sourceEnded(s, err) {
				return fmt.Errorf("read capture %d: %w", s.index, err)
			}
			continue
		}
		if err := m.accept(s, b); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) full(s *mergeSource) bool {
	q := &s.queue
	at, ok := q.First()
	if !ok {
		return false
	}
	return s.newest-min(s.newest, at) > uint64(m.opts.Window) || q.Len() >= m.opts.MaxPackets || q.Memory() >= m.opts.MaxBuffered
}

func (m *merger) accept(s *mergeSource, b Block) error {
	switch b := b.(type) {
	case *Section:
		m.section(s, b)
	case *Interface:
		return m.describe(s, b)
	case *Packet:
		b.Interface = s.numbers[b.Interface]
		s.newest = max(s.newest, b.Time)
		m.buf = AppendPacket(m.buf[:0], b)
		s.queue.Push(b.Time, m.buf)
	case *Statistics:
		b.Interface = s.numbers[b.Interface]
		m.stats[b.Interface] = s.before[b.Interface].Plus(b)
	}
	return nil
}

func (m *merger) describe(s *mergeSource, i *Interface) error {
	if n, ok := s.known(i); ok {
		s.numbers, s.ifaces = append(s.numbers, n), append(s.ifaces, i)
		return nil
	}
	s.numbers, s.ifaces = append(s.numbers, m.ifaces), append(s.ifaces, i)
	m.ifaces++
	m.stats = append(m.stats, nil)
	out := *i
	out.Comments = slices.Concat(s.note, i.Comments)
	s.note = nil
	m.buf = AppendInterface(m.buf[:0], &out)
	if m.ifaces == 1 && m.opts.Names != nil { // editcap and mergecap 4.0 refuse a file with names before its first interface
		m.buf = AppendNames(m.buf, m.opts.Names)
	}
	return m.write(m.buf)
}

func (m *merger) trailer() error {
	m.buf = m.buf[:0]
	for _, st := range m.stats {
		if st != nil {
			m.buf = AppendStatistics(m.buf, st)
		}
	}
	return m.write(m.buf)
}

// sourceEnded reports whether err is the end of a source, also within a block.
func (m *merger) sourceEnded(s *mergeSource, err error) bool {
	switch {
	case errors.Is(err, io.EOF):
	case errors.Is(err, ErrTruncated):
		m.result.Truncated = append(m.result.Truncated, s.index)
	default:
		return false
	}
	s.ended = !s.next()
	return true
}

func (m *merger) write(blocks []byte) error {
	if _, err := m.w.Write(blocks); err != nil {
		return fmt.Errorf("write merged capture: %w", err)
	}
	return nil
}
