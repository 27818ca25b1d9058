package output

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// BufferBytes is how many bytes of events are collected before a sink gets them.
const BufferBytes = 256 << 10

// Format of events.
type Format uint8

// Formats: JSON lines, FLAP's lines, and the kernel's records as they are (struct record of bpf/trace.bpf.c).
const (
	NDJSON Format = iota
	Flap
	Binary
)

// Sink takes events' lines. *File is one. After an error has ended the trace only Flush and Pending are called.
type Sink interface {
	// Write takes complete lines. Each event has the same number of lines. It returns how many events it took. If that
	// is not all, the error is the reason, and ends the trace.
	Write(lines []byte, events int) (taken int, err error)
	// Flush writes out the taken events: soon or, with wait, before it returns. An error ends the trace.
	Flush(wait bool) error
	// Pending returns how many taken events are not written out: not yet or, after an error, never.
	Pending() uint64
}

// Config of a Writer.
type Config struct {
	Format Format
	// Sinks by the name of their stream.
	Sinks map[string]Sink
	// MaxEvents is the number of events after which the trace ends; zero means no limit.
	MaxEvents uint64
}

// Counts of events.
type Counts struct {
	// Written are in their sink; Lost could not be written (disk full); BeyondLimit came after a limit was reached.
	Written, Lost, BeyondLimit uint64
}

// Writer collects events and hands them to sinks. Its methods belong to one goroutine, except Counts.
type Writer struct {
	format  Format
	max     uint64
	streams map[string]*Stream
	encoder tracefmt.Encoder
	taken   uint64 // by all sinks
	pending uint64 // in all streams
	end     recording.Reason
	err     error

	mu     sync.Mutex
	counts Counts
}

// Stream is one sink with the events that it gets next.
type Stream struct {
	sink   Sink
	lines  []byte
	events uint64
	taken  uint64 // by sink
}

// NewWriter returns a writer to the sinks.
func NewWriter(cfg Config) *Writer {
	w := &Writer{format: cfg.Format, max: cfg.MaxEvents, streams: map[string]*Stream{}}
	for name, sink := range cfg.Sinks {
		w.streams[name] = &Stream{sink: sink}
	}
	return w
}

// Stream returns a stream by its name; nil if there is none.
func (w *Writer) Stream(name string) *Stream { return w.streams[name] }

// End returns why no more events are written; empty while they are. Err explains recording.Error.
func (w *Writer) End() recording.Reason { return w.end }

// Err returns the sink's error that ended the trace.
func (w *Writer) Err() error { return w.err }

// Counts returns the current counts.
func (w *Writer) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Append appends an event to b in the writer's format: raw is its record, at its time since boot.
func (w *Writer) Append(b, raw []byte, event *tracefmt.Record, at time.Duration) []byte {
	switch w.format {
	case NDJSON:
		return w.encoder.Append(b, event)
	case Flap:
		return tracefmt.AppendFlap(b, event, at)
	default:
		return append(b, raw...)
	}
}

// Write writes an event, with the arguments of Append.
func (w *Writer) Write(s *Stream, raw []byte, event *tracefmt.Record, at time.Duration) {
	if w.end != "" {
		w.countBeyond()
		return
	}
	before := len(s.lines)
	if w.format == NDJSON { // the usual format, without one more call per event
		s.lines = w.encoder.Append(s.lines, event)
	} else {
		s.lines = w.Append(s.lines, raw, event, at)
	}
	w.addedOne(s, before)
}

// WriteLines writes an event that Append has formatted.
func (w *Writer) WriteLines(s *Stream, lines []byte) {
	if w.end != "" {
		w.countBeyond()
		return
	}
	before := len(s.lines)
	s.lines = append(s.lines, lines...)
	w.addedOne(s, before)
}

// addedOne counts an event whose lines begin at before. One that the format has no lines for is lost.
func (w *Writer) addedOne(s *Stream, before int) {
	if len(s.lines) > before {
		w.added(s, 1)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Lost++
}

// WriteBatch writes formatted events, at most Room of them; a batch of BufferBytes is not copied. It returns false if the
// trace has ended before any of them was taken.
func (w *Writer) WriteBatch(s *Stream, lines []byte, events uint64) bool {
	if len(lines) < BufferBytes {
		s.lines = append(s.lines, lines...)
		w.added(s, events)
		return true
	}
	if w.flush(s); w.end != "" {
		return false
	}
	own := s.lines
	s.lines = lines
	w.added(s, events) // hands them on at once
	s.lines = own
	return true
}

// Room returns how many more events may be written.
func (w *Writer) Room() uint64 {
	if w.max == 0 {
		return math.MaxUint64
	}
	return w.max - min(w.max, w.taken+w.pending)
}

// added counts events that were appended to a stream.
func (w *Writer) added(s *Stream, events uint64) {
	s.events += events
	w.pending += events
	last := w.Room() == 0
	if last {
		w.Flush()
	} else if len(s.lines) >= BufferBytes {
		w.flush(s)
	}
	if last && w.end == "" {
		w.end = recording.EventLimit
	}
}

// Flush hands the events of all streams to their sinks.
func (w *Writer) Flush() {
	for _, s := range w.streams {
		w.flush(s)
	}
}

// flush hands a stream's events on. If the sink refuses them the trace ends.
func (w *Writer) flush(s *Stream) {
	if s.events == 0 {
		return
	}
	n, err := s.sink.Write(s.lines, int(s.events))
	rest := s.events - uint64(n)
	w.pending -= s.events
	s.lines, s.events = s.lines[:0], 0
	s.taken += uint64(n)
	w.taken += uint64(n)
	w.mu.Lock()
	switch {
	case err == nil:
	case errors.Is(err, errByteLimit):
		w.end = recording.ByteLimit
		w.counts.BeyondLimit += rest
	default:
		w.end, w.err = recording.Error, err
		w.counts.Lost += rest
	}
	w.mu.Unlock()
	w.countWritten()
}

// Deliver flushes the sinks: their events are written out soon or, with wait, on return.
func (w *Writer) Deliver(wait bool) {
	for _, s := range w.streams {
		if err := s.sink.Flush(wait); err != nil && w.err == nil {
			w.end, w.err = recording.Error, err
		}
	}
	w.countWritten()
}

// countWritten counts the events that are in their sinks.
func (w *Writer) countWritten() {
	written := uint64(0)
	for _, s := range w.streams {
		written += s.taken - s.sink.Pending()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Written = written
}

// Close counts the events that an error left unwritten as lost: in streams, in sinks, and more events besides.
func (w *Writer) Close(more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts.Lost += w.pending + uint64(more) + w.taken - w.counts.Written
	w.pending = 0
}

// countBeyond counts an event after the end.
func (w *Writer) countBeyond() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		w.counts.Lost++
	} else {
		w.counts.BeyondLimit++
	}
}
