package traceview

import (
	"cmp"
	"context"
	"errors"
	"io"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Source is one stream with a trace: a file, or the lines of a Pod.
type Source struct {
	// Name of the file. The name of the Pod is in the header.
	Name string
	// Header of the trace to which the last line belongs; a file may hold several traces. It has only the namespace, the job
	// ID, the Pod's name and UID, and the architecture.
	Header *tracefmt.Header

	headers  map[podKey]*tracefmt.Header
	reader   *tracefmt.Reader
	next     tracefmt.Line
	lineErr  error // set instead of next
	buffered bool
}

// NewSource returns a source that reads from r.
func NewSource(name string, r io.Reader) *Source {
	return &Source{Name: name, reader: tracefmt.NewReader(r)}
}

// Pod returns the name of the traced Pod, or of the source if the Pod is unknown.
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

// key is the same for all files of one trace of a Pod.
func (s *Source) key() string {
	if s.Header == nil || s.Header.Pod == "" {
		return "\x00" + s.Name
	}
	return table.Truncate(s.Header.JobID+"/"+s.Header.Namespace+"/"+s.Header.Pod+"/"+s.Header.PodUID, maxText)
}

// Sink receives the lines of traces one by one. A line is valid until the method returns. An error ends Read.
type Sink interface {
	// Line receives a line. The header of the source is set if it has one.
	Line(from *Source, line *tracefmt.Line) error
	// Damaged is called instead of Line for a line that cannot be read.
	Damaged(from *Source, err error) error
	// End is called when a source has no more lines.
	End(from *Source)
	// Idle is called before Read waits for a line.
	Idle() error
}

// Read passes the lines of all sources to the sink in the order of time. It returns when all sources or the context
// end.
func Read(ctx context.Context, sources []*Source, sink Sink) error {
	for ctx.Err() == nil {
		first, err := nextSource(sources, sink)
		if err != nil || first == nil {
			return err
		}
		first.buffered = false
		if first.lineErr != nil {
			err = sink.Damaged(first, first.lineErr)
		} else {
			err = sink.Line(first, &first.next)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// nextSource returns the source of the next line: a line without a time comes first, then the earliest event.
func nextSource(sources []*Source, sink Sink) (*Source, error) {
	var first *Source
	for _, s := range sources {
		if err := s.fill(sink); err != nil {
			return nil, err
		}
		switch {
		case !s.buffered:
		case s.untimed():
			return s, nil
		case first == nil || s.next.Record.Time.Before(first.next.Record.Time):
			first = s
		}
	}
	return first, nil
}

// untimed reports whether the buffered line is not an event or cannot be read.
func (s *Source) untimed() bool { return s.lineErr != nil || s.next.Record == nil }

// fill buffers the next line unless one is buffered. At the end of the source it buffers nothing.
func (s *Source) fill(sink Sink) error {
	if s.buffered || s.reader == nil {
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
	s.next, s.lineErr, s.buffered = line, err, true
	switch {
	case line.Header != nil:
		s.observe(line.Header)
	case line.Record != nil:
		s.selectPod(line.Record.Pod, line.Record.PodUID)
	case line.Account != nil:
		s.selectPod(line.Account.Pod, line.Account.PodUID)
	}
	return nil
}

// podKey is how the lines of a file with several traces name their Pod.
type podKey struct{ name, uid string }

func keyOf(pod, uid string) podKey {
	return podKey{table.Truncate(pod, maxText), table.Truncate(uid, maxText)}
}

// observe remembers the header of a trace that begins, without what is not used: a line may have 1 MiB.
func (s *Source) observe(h *tracefmt.Header) {
	k := keyOf(h.Pod, h.PodUID)
	s.Header = &tracefmt.Header{
		Namespace: table.Truncate(h.Namespace, maxText), JobID: table.Truncate(h.JobID, maxText), Pod: k.name, PodUID: k.uid,
		Arch: table.Truncate(h.Arch, maxText),
	}
	if s.headers == nil {
		s.headers = map[podKey]*tracefmt.Header{}
	}
	if len(s.headers) < 2*maxTraces { // two keys for each trace
		s.headers[podKey{k.name, ""}] = s.Header // lines have the UID only where the name is ambiguous
		s.headers[k] = s.Header
	}
}

// selectPod sets Header to the header of the Pod that a line names. A line without a name belongs to the last Pod.
func (s *Source) selectPod(pod, uid string) {
	if pod == "" {
		return
	}
	if h := s.headers[keyOf(pod, uid)]; h != nil {
		s.Header = h
		return
	}
	s.observe(&tracefmt.Header{Pod: pod, PodUID: uid})
}

// SourceError names a source that cannot be read.
type SourceError struct {
	Name string
	Err  error
}

func (e *SourceError) Error() string { return e.Name + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *SourceError) Unwrap() error { return e.Err }
