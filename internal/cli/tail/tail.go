// Package tail shows the events of a trace while it runs: the lines of several Pods' files in the order of their
// arrival. Events that come too fast to be shown are omitted and counted. They are in the files nevertheless.
package tail

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/podstreams"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const (
	// maxStreams is how many Pods are shown at the same time. A user may have 16 streams open at one replica, and needs
	// some for other things.
	maxStreams = 8
	// maxPending is how much text may wait to be printed, in bytes. Older events are of no interest to a reader.
	maxPending = 256 << 10
	// drainTimeout is how long Finish waits for lines after the trace has ended, unless Options.JSON is set.
	drainTimeout = 3 * time.Second
	// fileSuffix of the files that can be streamed.
	fileSuffix = ".ndjson"
)

// Options of a Tail.
type Options struct {
	// Stream copies the lines of a Pod's file to w until the trace has ended (results.Client.Live). With newest it may
	// skip lines.
	Stream func(ctx context.Context, podUID, file string, newest bool, w io.Writer) error
	// Print shows text to the user.
	Print func(text []byte) error
	// OnPrintError, if not nil, is called once when Print has failed, because the output was closed.
	OnPrintError func()
	// JSON prints all lines, with the name of the Pod. It is meant for programs, so it omits none.
	JSON bool
	// Terminal says that the text is for a terminal: what is not printable in JSON lines is escaped.
	Terminal bool
	// Colour and Width as in traceview.Live.
	Colour bool
	Width  func() int
}

// Tail shows one trace. New starts it and Finish ends it.
type Tail struct {
	o           Options
	pods        *podstreams.Group
	cancel      context.CancelFunc
	wake        chan struct{} // there is something to print
	noMoreLines chan struct{} // closed when no more lines will come
	printed     chan struct{} // closed when all is printed

	mu      sync.Mutex
	notFull *sync.Cond   // signals that pending has room
	closed  bool         // no more lines are accepted
	pending bytes.Buffer // text to be printed
	waiting uint64       // events in pending
	omitted uint64       // events omitted since the last one in pending
	format  *traceview.Live
	shown   uint64
	err     error // of Print
}

// New returns a Tail. It shows the Pods that are passed to Update until ctx ends or Finish is called.
func New(ctx context.Context, o Options) *Tail {
	t := &Tail{o: o, wake: make(chan struct{}, 1), noMoreLines: make(chan struct{}), printed: make(chan struct{})}
	t.notFull = sync.NewCond(&t.mu)
	t.format = traceview.NewLive(&t.pending)
	t.format.Colour, t.format.Width = o.Colour, o.Width
	ctx, cancel := context.WithCancel(ctx)
	t.cancel = cancel
	t.pods = podstreams.New(ctx, podstreams.Options{Suffix: fileSuffix, Most: maxStreams, Read: t.showPod})
	context.AfterFunc(ctx, t.close)
	go t.print()
	return t
}

// Update adds or updates a Pod. Its events are shown once the name of its file is known.
func (t *Tail) Update(u results.Update) {
	t.pods.Update(u)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.format.Pods = t.pods.Pods() > 1
}

// Finish waits for the last lines of a trace that has ended, and ends the Tail. It returns how many events were shown,
// and the error for which some were not, if any.
func (t *Tail) Finish(ctx context.Context) (shown uint64, streamErr error) {
	deadline := ctx
	if !t.o.JSON {
		var cancel context.CancelFunc
		deadline, cancel = context.WithTimeout(ctx, drainTimeout)
		defer cancel()
	}
	context.AfterFunc(deadline, func() {
		t.pods.Stop()
		t.close() // a line that waits for room would keep its stream
	})
	streamErr = t.pods.Drain(deadline)
	t.cancel()
	close(t.noMoreLines)
	<-t.printed
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown, streamErr
}

// close rejects all later lines.
func (t *Tail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.notFull.Broadcast()
}

// showPod shows the lines of one Pod.
func (t *Tail) showPod(ctx context.Context, pod podstreams.Pod) error {
	r, w := io.Pipe()
	go func() {
		_ = w.CloseWithError(t.o.Stream(ctx, pod.UID, pod.File, !t.o.JSON, w)) // nil makes it io.EOF
	}()
	err := traceview.Read(ctx, []*traceview.Source{traceview.NewSource(pod.Name, r)}, sink{t, pod.Name, pod.UID})
	_ = r.CloseWithError(err)
	return err
}

// sink receives the lines of one Pod.
type sink struct {
	t        *Tail
	pod, uid string
}

// Line queues a line for printing, or omits it.
func (s sink) Line(from *traceview.Source, line *tracefmt.Line) error {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.o.JSON && t.pending.Len() > maxPending && !t.closed {
		t.notFull.Wait()
	}
	switch {
	case t.closed:
		return context.Canceled
	case t.o.JSON:
		t.pending.Write(s.named(line))
	case line.Record == nil:
		return nil
	case t.pending.Len() > maxPending:
		t.omitted++
		return nil
	default:
		t.writeOmitted()
		if err := t.format.Show(from, line.Record); err != nil {
			return err
		}
	}
	if line.Record != nil {
		t.waiting++
	}
	t.notify()
	return nil
}

// named returns a line with the name of its Pod.
func (s sink) named(line *tracefmt.Line) []byte {
	var b []byte
	if line.Header != nil {
		b = append(slices.Clone(line.Raw), '\n')
	} else {
		b = tracefmt.AppendWithPod(nil, line.Raw, s.pod, s.uid)
	}
	if s.t.o.Terminal {
		b = table.AppendPrintableJSON(nil, b)
	}
	return b
}

// writeOmitted says how many events were omitted at this point.
func (t *Tail) writeOmitted() {
	if t.omitted > 0 {
		fmt.Fprintf(&t.pending, "... %d events came too fast to be shown; they are in the file\n", t.omitted)
		t.omitted = 0
	}
}

func (t *Tail) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Damaged omits the line. The summary of the file reports it.
func (sink) Damaged(*traceview.Source, error) error { return nil }

// End does nothing: other Pods may have more lines.
func (sink) End(*traceview.Source) {}

// Idle does nothing: print runs all the time.
func (sink) Idle() error { return nil }

// print prints the queued text until the Tail ends.
func (t *Tail) print() {
	defer close(t.printed)
	for last := false; !last; {
		select {
		case <-t.wake:
		case <-t.noMoreLines:
			last = true
		}
		t.mu.Lock()
		if last {
			t.writeOmitted()
		}
		text, events, failed := slices.Clone(t.pending.Bytes()), t.waiting, t.err != nil
		t.pending.Reset()
		t.waiting = 0
		t.notFull.Broadcast()
		t.mu.Unlock()
		if len(text) > 0 && !failed {
			t.write(text, events)
		}
	}
}

// write prints text, which has so many events.
func (t *Tail) write(text []byte, events uint64) {
	err := t.o.Print(text)
	t.mu.Lock()
	if t.err = err; err == nil {
		t.shown += events
	}
	t.mu.Unlock()
	if err == nil {
		return
	}
	t.cancel()
	if t.o.OnPrintError != nil {
		t.o.OnPrintError()
	}
}
