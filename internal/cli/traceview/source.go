package traceview

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Source is one stream of a trace: a file, or what comes from a Pod.
type Source struct {
	// Name of the file; that of the Pod stands in its header.
	Name string
	// Header of the trace that the last line is of: a file may have several.
	Header *tracefmt.Header

	headers map[podKey]*tracefmt.Header
	reader  *tracefmt.Reader
	next    tracefmt.Line
	broken  error // instead of next
	have    bool
}

// NewSource returns the source that r is.
func NewSource(name string, r io.Reader) *Source {
	return &Source{Name: name, reader: tracefmt.NewReader(r)}
}

// Pod is the name of the traced Pod, or else that of the source.
func (s *Source) Pod() string {
	if s.Header == nil {
		return s.Name
	}
	return table.Truncate(cmp.Or(s.Header.Pod, s.Name), maxText)
}

func (s *Source) arch() string {
	if s.Header == nil {
		return ""
	}
	return s.Header.Arch
}

// key of what belongs together: a Pod's files are one trace.
func (s *Source) key() string {
	if s.Header == nil || s.Header.Pod == "" {
		return "\x00" + s.Name
	}
	return table.Truncate(s.Header.Namespace+"/"+s.Header.Pod+"/"+s.Header.PodUID, maxText)
}

// Sink takes lines of traces, one after the other. The line is good until it returns; an error ends the reading.
type Sink interface {
	// Line takes a line of a source, whose header is known by then.
	Line(from *Source, line *tracefmt.Line) error
	// Damaged takes the place of a line that cannot be read.
	Damaged(from *Source, err error) error
	// End says that a source has no more lines.
	End(from *Source)
	// Idle says that the next line has to be waited for.
	Idle() error
}

// Read gives the lines of all sources to the sink, in the order of time, until all have ended, or the context.
func Read(ctx context.Context, sources []*Source, sink Sink) error {
	for ctx.Err() == nil {
		first, err := earliest(sources, sink)
		if err != nil || first == nil {
			return err
		}
		first.have = false
		if first.broken != nil {
			err = sink.Damaged(first, first.broken)
		} else {
			err = sink.Line(first, &first.next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// earliest returns the source whose line is next: one with a line that has no time, or else with the earliest event.
func earliest(sources []*Source, sink Sink) (*Source, error) {
	var first *Source
	for _, s := range sources {
		if err := s.fill(sink); err != nil {
			return nil, err
		}
		switch {
		case !s.have:
		case s.timeless():
			return s, nil
		case first == nil || s.next.Record.Time.Before(first.next.Record.Time):
			first = s
		}
	}
	return first, nil
}

// timeless: the line is no event, or cannot be read.
func (s *Source) timeless() bool { return s.broken != nil || s.next.Record == nil }

// fill reads the next line, if there is none yet. At the end there is none.
func (s *Source) fill(sink Sink) error {
	if s.have || s.reader == nil {
		return nil
	}
	if !s.reader.Ready() {
		if err := sink.Idle(); err != nil {
			return err
		}
	}
	line, err := s.reader.Next()
	if errors.Is(err, io.EOF) {
		s.reader = nil
		sink.End(s)
		return nil
	}
	if _, damaged := errors.AsType[*tracefmt.LineError](err); err != nil && !damaged {
		return &SourceError{s.Name, err}
	}
	s.next, s.broken, s.have = line, err, true
	switch {
	case line.Header != nil:
		s.learn(line.Header)
	case line.Record != nil:
		s.turn(line.Record.Pod, line.Record.PodUID)
	case line.Account != nil:
		s.turn(line.Account.Pod, line.Account.PodUID)
	}
	return nil
}

// podKey is what lines of a file with several Pods' traces say of whose they are.
type podKey struct{ name, uid string }

// learn whose trace begins.
func (s *Source) learn(h *tracefmt.Header) {
	s.Header = h
	if s.headers == nil {
		s.headers = map[podKey]*tracefmt.Header{}
	}
	if len(s.headers) < maxTraces {
		s.headers[podKey{h.Pod, ""}] = h // the uid is there only where the name is not enough
		s.headers[podKey{h.Pod, h.PodUID}] = h
	}
}

// turn to the Pod that a line is of. Lines that do not say are of the last one.
func (s *Source) turn(pod, uid string) {
	if pod == "" {
		return
	}
	if h := s.headers[podKey{pod, uid}]; h != nil {
		s.Header = h
		return
	}
	s.learn(&tracefmt.Header{Pod: pod, PodUID: uid})
}

// SourceError says which source cannot be read.
type SourceError struct {
	Name string
	Err  error
}

func (e *SourceError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns why.
func (e *SourceError) Unwrap() error { return e.Err }
