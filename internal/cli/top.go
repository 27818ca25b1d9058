package cli

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/follow"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/podstreams"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/cli/top"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
)

// topUsage describes the flag --top.
func topUsage(what string) string {
	return "On a terminal, show the busiest " + what + " while it runs; keys choose how they are sorted"
}

// terminalMode restores the mode of the terminal at the end of the plugin.
type terminalMode struct {
	mu      sync.Mutex
	restore func()
}

func (m *terminalMode) set(restore func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restore = restore
}

// reset restores the mode. It may be called several times.
func (m *terminalMode) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.restore != nil {
		m.restore()
	}
}

// topView is a display with a table of what is busiest. It is a companion, too.
type topView struct {
	live.Display

	clock   clock.PassiveClock
	table   *top.Top
	mode    *terminalMode
	records topRecords
	closed  sync.Once
	ended   atomic.Bool
	err     error
}

// topRecords counts the records of a running capture.
type topRecords interface {
	// start reads the records by streams of its own.
	start(ctx context.Context, p *plugin, endpoint *results.Client, c v1alpha1.Capture)
	update(results.Update)
	stop() error
}

// newTopView returns a display on the terminal, and reads keys if there is a keyboard.
func (p *plugin) newTopView(c v1alpha1.Capture) (*topView, error) {
	v := &topView{clock: p.clock, mode: p.mode}
	if capture.UnitOf(c) == live.Events {
		table, calls := top.NewCalls()
		v.table, v.records = table, &topEvents{calls: calls}
	} else {
		table, counted := top.NewConversations()
		v.table, v.records = table, &topPackets{counted: counted}
	}
	if p.keyboard == nil {
		v.Display = p.display(p.streams.ErrOut)
		return v, nil
	}
	v.Display = live.NewTerminal(live.RawWriter{Writer: p.terminal}, p.terminalSize)
	keys, err := live.NewKeys(p.keyboard, func(key byte) {
		switch key {
		case live.KeyInterrupt, live.KeyQuit:
			p.interrupts.signal()
		default:
			v.table.Press(key)
		}
	})
	if err != nil {
		return nil, err
	}
	p.mode.set(keys.Restore)
	return v, nil
}

// start counts records. stream, if not nil, are options for a stream of the same packets: then that one feeds the table, too.
func (v *topView) start(ctx context.Context, p *plugin, endpoint *results.Client, c v1alpha1.Capture, stream *streamOptions) {
	if packets, ok := v.records.(*topPackets); ok && stream != nil {
		stream.table = packets.count()
		return
	}
	v.records.start(ctx, p, endpoint, c)
}

// Show adds the table while the capture runs.
func (v *topView) Show(view live.View) {
	if !v.ended.Load() {
		view.Table = v.table.Table(v.clock.Now())
	}
	v.Display.Show(view)
}

// Close ends the display, and restores the terminal.
func (v *topView) Close() {
	v.closed.Do(v.Display.Close)
	v.mode.reset()
}

func (v *topView) update(u results.Update) { v.records.update(u) }

// finish waits for no more records: the table is not shown any more.
func (v *topView) finish(context.Context) {
	v.ended.Store(true)
	v.err = v.records.stop()
}

func (v *topView) addNote(_ capture.Saved, r *report.Report) {
	if v.err != nil {
		r.Notes = append(r.Notes, "the table was not complete: "+v.err.Error())
	}
}

// topPackets counts the conversations of a packet capture.
type topPackets struct {
	counted *top.Conversations
	stream  *follow.Stream // nil if the stream that is written is counted
	out     *io.PipeWriter
	ended   chan error
}

// count returns a writer that counts the packets of a pcapng stream.
func (t *topPackets) count() io.Writer {
	in, out := io.Pipe()
	t.out, t.ended = out, make(chan error, 1)
	go func() {
		err := t.counted.Read(in)
		_ = in.CloseWithError(err)
		t.ended <- err
	}()
	return out
}

func (t *topPackets) start(ctx context.Context, p *plugin, endpoint *results.Client, c v1alpha1.Capture) {
	t.stream = p.newStream(ctx, endpoint, c, streamOptions{fromStart: true}, t.count())
}

func (t *topPackets) update(u results.Update) {
	if t.stream != nil {
		t.stream.Update(u)
	}
}

func (t *topPackets) stop() error {
	var r follow.Result
	var err error
	if t.stream != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r, err = t.stream.Finish(ctx)
	}
	_ = t.out.Close()
	if counted := <-t.ended; counted != nil {
		return counted
	}
	if lacks := r.Skipped + r.Waited; err == nil && lacks > 0 {
		err = fmt.Errorf("it lacks %d packets, because there were too many for it", lacks)
	}
	return err
}

// teeWriter writes to out, and then to the table. An error of the table does not end the stream.
type teeWriter struct{ out, table io.Writer }

// Write writes b to both.
func (w teeWriter) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	if err == nil {
		_, _ = w.table.Write(b)
	}
	return n, err
}

// maxTraces is how many Pods are counted at the same time, as in package tail.
const maxTraces = 8

// topEvents counts the calls of a trace.
type topEvents struct {
	calls *top.Calls
	pods  *podstreams.Group
}

func (t *topEvents) start(ctx context.Context, _ *plugin, endpoint *results.Client, _ v1alpha1.Capture) {
	t.pods = podstreams.New(ctx, podstreams.Options{
		Suffix: ".ndjson", Most: maxTraces,
		Read: func(ctx context.Context, pod podstreams.Pod) error {
			in, out := io.Pipe()
			go func() { _ = out.CloseWithError(endpoint.Live(ctx, pod.UID, pod.File, true, out)) }() // nil makes it io.EOF
			err := traceview.Read(ctx, []*traceview.Source{traceview.NewSource(pod.Name, in)}, t.calls)
			_ = in.CloseWithError(err)
			return err
		},
	})
}

func (t *topEvents) update(u results.Update) { t.pods.Update(u) }

func (t *topEvents) stop() error {
	t.pods.Stop()
	err := t.pods.Drain(context.Background())
	if n := t.pods.Pods(); err == nil && n > maxTraces {
		err = fmt.Errorf("it counted %d Pods at a time, of %d", maxTraces, n)
	}
	return err
}
