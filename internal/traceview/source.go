package traceview

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/sonde-operator/sonde/internal/tracefmt"
)

// Source is one stream of a trace: a file, or what comes from a Pod.
type Source struct {
	// Name of the file; that of the Pod stands in its header.
	Name   string
	Header *tracefmt.Header

	reader *tracefmt.Reader
	next   tracefmt.Line
	broken error // instead of next
	have   bool
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
	return cut(cmp.Or(s.Header.Pod, s.Name), maxText)
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
	return cut(s.Header.Namespace+"/"+s.Header.Pod+"/"+s.Header.PodUID, maxText)
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
	if line.Header != nil {
		s.Header = line.Header
	}
	return nil
}

// SourceError says which source cannot be read.
type SourceError struct {
	Name string
	Err  error
}

func (e *SourceError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns why.
func (e *SourceError) Unwrap() error { return e.Err }
