package capture

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// eventBuffer is how much is written at once, in bytes.
const eventBuffer = 256 << 10

// mergeEvents writes the lines of the Pods' traces, with their headers and accounts, and adds them up. Lines of several
// Pods say whose they are.
func (s *Saved) mergeEvents(ctx context.Context, w io.Writer, pods [][]*SavedFile, files [][]io.Reader) error {
	namesakes := map[string]int{}
	for _, p := range pods {
		namesakes[p[0].Pod.Name]++
	}
	m := &eventMerger{out: bufio.NewWriterSize(w, eventBuffer), summary: traceview.NewSummary(), parts: map[*traceview.Source]eventPart{}}
	sources := make([]*traceview.Source, len(files))
	for i, f := range files {
		part := eventPart{file: pods[i][len(pods[i])-1]}
		if len(pods) > 1 {
			part.pod = part.file.Pod.Name
		}
		if namesakes[part.pod] > 1 { // as of a StatefulSet that started one anew
			part.uid = part.file.Pod.UID
		}
		sources[i] = traceview.NewSource(part.file.Name, io.MultiReader(f...))
		m.parts[sources[i]] = part
	}
	if err := traceview.Read(ctx, sources, m); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := m.out.Flush(); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	s.Trace, s.Late = m.summary, m.late
	return nil
}

// eventPart is one Pod's trace: pod and uid are what its lines say of whose they are.
type eventPart struct {
	file     *SavedFile
	pod, uid string
}

// eventMerger is a traceview.Sink that writes lines as they are.
type eventMerger struct {
	out     *bufio.Writer
	summary *traceview.Summary
	parts   map[*traceview.Source]eventPart
	line    []byte
	last    time.Time
	late    uint64
}

// Line writes a line, and adds it up.
func (m *eventMerger) Line(from *traceview.Source, line *tracefmt.Line) error {
	m.summary.Line(from, line)
	if r := line.Record; r != nil {
		if r.Time.Before(m.last) {
			m.late++
		} else {
			m.last = r.Time
		}
	}
	m.line = m.line[:0]
	if part := m.parts[from]; part.pod != "" && line.Header == nil {
		m.line = tracefmt.AppendWithPod(m.line, line.Raw, part.pod, part.uid)
	} else {
		m.line = append(append(m.line, line.Raw...), '\n')
	}
	if _, err := m.out.Write(m.line); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

// Damaged leaves the line out. Of a Pod that is not Completed it is known, and said, that its file is not whole.
func (m *eventMerger) Damaged(from *traceview.Source, err error) error {
	m.summary.Damaged(from, err)
	if f := m.parts[from].file; f.Err == nil && f.Pod.Phase == v1alpha1.PhaseCompleted {
		f.Err = fmt.Errorf("%s: %w: fetch it again", f.Name, err)
	}
	return nil
}

// End notes that a Pod's trace has ended.
func (m *eventMerger) End(from *traceview.Source) { m.summary.End(from) }

// Idle has nothing to do: nobody watches.
func (m *eventMerger) Idle() error { return nil }
