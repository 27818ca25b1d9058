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

// eventBuffer is the size of the write buffer in bytes.
const eventBuffer = 256 << 10

// mergeEvents merges the lines of the Pods' traces, with their headers and accounts, and sums them up. If there are
// several Pods, each line names its Pod.
func (s *Saved) mergeEvents(ctx context.Context, w io.Writer, pods [][]*SavedFile, files [][]io.Reader) error {
	podsByName := map[string]int{}
	for _, p := range pods {
		podsByName[p[0].Pod.Name]++
	}
	m := &eventMerger{out: bufio.NewWriterSize(w, eventBuffer), summary: traceview.NewSummary(), labels: map[*traceview.Source]podLabel{}}
	sources := make([]*traceview.Source, len(files))
	for i, f := range files {
		label := podLabel{file: pods[i][len(pods[i])-1]}
		if len(pods) > 1 {
			label.pod = label.file.Pod.Name
		}
		if podsByName[label.pod] > 1 { // a StatefulSet restarted a Pod under its name
			label.uid = label.file.Pod.UID
		}
		sources[i] = traceview.NewSource(label.file.Name, io.MultiReader(f...))
		m.labels[sources[i]] = label
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

// podLabel is how the lines of a file name their Pod. Empty fields are not written.
type podLabel struct {
	file     *SavedFile
	pod, uid string
}

// eventMerger is a traceview.Sink that writes all lines.
type eventMerger struct {
	out     *bufio.Writer
	summary *traceview.Summary
	labels  map[*traceview.Source]podLabel
	line    []byte
	last    time.Time
	late    uint64
}

// Line writes a line and adds it to the summary.
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
	if label := m.labels[from]; label.pod != "" && line.Header == nil {
		m.line = tracefmt.AppendWithPod(m.line, line.Raw, label.pod, label.uid)
	} else {
		m.line = append(append(m.line, line.Raw...), '\n')
	}
	if _, err := m.out.Write(m.line); err != nil {
		return fmt.Errorf("write the trace: %w", err)
	}
	return nil
}

// Damaged omits the line. The file of a Pod that is not Completed is expected to be damaged, and its phase is reported.
func (m *eventMerger) Damaged(from *traceview.Source, err error) error {
	m.summary.Damaged(from, err)
	if f := m.labels[from].file; f.Err == nil && f.Pod.Phase == v1alpha1.PhaseCompleted {
		f.Err = fmt.Errorf("%s: %w: download it again", f.Name, err)
	}
	return nil
}

// End adds the end of a trace to the summary.
func (m *eventMerger) End(from *traceview.Source) { m.summary.End(from) }

// Idle does nothing: the output may be buffered until the end.
func (m *eventMerger) Idle() error { return nil }
