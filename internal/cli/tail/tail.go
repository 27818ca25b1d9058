// Package tail shows the events of a trace while it runs: the lines of several Pods' files in the order in which they
// arrive. What comes faster than it is shown is left out and counted: it is in the files all the same.
package tail

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const (
	// atOnce is how many Pods are shown at once; a user may have 16 requests at once, and needs some besides.
	atOnce = 8
	// backlog is how much text may wait to be printed, in bytes. What is older than that a reader does not want to see.
	backlog = 256 << 10
	// ending is how long lines may come after the trace has ended, unless all of them are wanted.
	ending = 3 * time.Second
	// suffix of the files that can be followed.
	suffix = ".ndjson"
)

// Options say how events are shown.
type Options struct {
	// Stream writes the lines of a Pod's file as they are written, until the trace has ended (results.Client.Live). With
	// newest it may leave lines out.
	Stream func(ctx context.Context, podUID, file string, newest bool, w io.Writer) error
	// Print writes text where it is seen.
	Print func(text []byte) error
	// Broken, if not nil, is called once when Print has failed: nobody looks any more.
	Broken func()
	// JSON prints the lines as they are, with the Pod's name, and leaves none out: the reader is a program.
	JSON bool
	// Colour and Width as in traceview.Live.
	Colour bool
	Width  func() int
}

// Tail shows one trace. Make it with New and end it with Finish.
type Tail struct {
	o       Options
	cancel  context.CancelFunc
	follow  func(podUID, file, pod string)
	streams sync.WaitGroup
	places  chan struct{}
	wake    chan struct{} // there is something to print
	ended   chan struct{} // closed when nothing more comes
	printed chan struct{} // closed when all is printed

	mu       sync.Mutex
	room     *sync.Cond      // for more text
	closed   bool            // no more lines are wanted
	followed map[string]bool // by the UID of each Pod that is known
	pending  bytes.Buffer    // text that waits to be printed
	waiting  uint64          // events in it
	omitted  uint64          // events since the last that is in it
	format   *traceview.Live
	shown    uint64
	err      error // of printing
	trouble  error // of a stream: the first
}

// New returns a Tail that shows what Update tells it of, until ctx ends or Finish.
func New(ctx context.Context, o Options) *Tail {
	ctx, cancel := context.WithCancel(ctx)
	t := &Tail{
		o: o, cancel: cancel, places: make(chan struct{}, atOnce), wake: make(chan struct{}, 1),
		ended: make(chan struct{}), printed: make(chan struct{}), followed: map[string]bool{},
	}
	t.room = sync.NewCond(&t.mu)
	t.format = traceview.NewLive(&t.pending)
	t.format.Colour, t.format.Width = o.Colour, o.Width
	t.follow = func(podUID, file, pod string) {
		t.streams.Go(func() { t.one(ctx, podUID, file, pod) })
	}
	context.AfterFunc(ctx, t.close)
	go t.print()
	return t
}

// Update tells of a Pod, which is shown as soon as its file has a name.
func (t *Tail) Update(u results.Update) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := t.followed[u.UID]
	t.followed[u.UID] = begun
	t.format.Pods = len(t.followed) > 1
	if t.closed || begun || u.Account == nil {
		return
	}
	for _, f := range u.Account.Files {
		if strings.HasSuffix(f.Name, suffix) {
			t.followed[u.UID] = true
			t.follow(u.UID, f.Name, u.Pod)
			return
		}
	}
}

// Finish waits for the last lines of a trace that has ended, and ends the Tail. It returns how many events were shown,
// and why they are not all, where that is known.
func (t *Tail) Finish(ctx context.Context) (shown uint64, trouble error) {
	all := make(chan struct{})
	go func() {
		t.streams.Wait()
		close(all)
	}()
	patience := ctx
	if !t.o.JSON {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, ending)
		defer cancel()
	}
	select {
	case <-all:
	case <-patience.Done():
	}
	t.cancel()
	<-all
	close(t.ended)
	<-t.printed
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown, t.trouble
}

// close takes no more lines.
func (t *Tail) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.room.Broadcast()
}

// one shows the lines of one Pod.
func (t *Tail) one(ctx context.Context, podUID, file, pod string) {
	select {
	case t.places <- struct{}{}:
		defer func() { <-t.places }()
	case <-ctx.Done():
		return
	}
	r, w := io.Pipe()
	go func() {
		_ = w.CloseWithError(t.o.Stream(ctx, podUID, file, !t.o.JSON, w)) // nil is the end
	}()
	err := traceview.Read(ctx, []*traceview.Source{traceview.NewSource(pod, r)}, sink{t, pod})
	_ = r.CloseWithError(err)
	if err != nil && ctx.Err() == nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.trouble == nil {
			t.trouble = err
		}
	}
}

// sink takes the lines of one Pod.
type sink struct {
	t   *Tail
	pod string
}

// Line puts a line among those to be printed, or leaves it out.
func (s sink) Line(from *traceview.Source, line *tracefmt.Line) error {
	t := s.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.o.JSON && t.pending.Len() > backlog && !t.closed {
		t.room.Wait()
	}
	switch {
	case t.closed:
		return context.Canceled
	case t.o.JSON:
		t.pending.Write(s.named(line))
	case line.Record == nil:
		return nil
	case t.pending.Len() > backlog:
		t.omitted++
		return nil
	default:
		t.gap()
		if err := t.format.Show(from, line.Record); err != nil {
			return err
		}
	}
	if line.Record != nil {
		t.waiting++
	}
	t.awake()
	return nil
}

// named is a line that says whose it is.
func (s sink) named(line *tracefmt.Line) []byte {
	if line.Header != nil {
		return append(slices.Clone(line.Raw), '\n')
	}
	return tracefmt.AppendWithPod(nil, line.Raw, s.pod, "")
}

// gap says where events are missing.
func (t *Tail) gap() {
	if t.omitted > 0 {
		fmt.Fprintf(&t.pending, "... %d events came faster than they are shown, and are in the file\n", t.omitted)
		t.omitted = 0
	}
}

func (t *Tail) awake() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Damaged leaves the line out: the file's summary tells of it.
func (sink) Damaged(*traceview.Source, error) error { return nil }

// End does nothing: other Pods may go on.
func (sink) End(*traceview.Source) {}

// Idle does nothing: what there is is printed all the time.
func (sink) Idle() error { return nil }

// print prints what waits, until the end.
func (t *Tail) print() {
	defer close(t.printed)
	for over := false; !over; {
		select {
		case <-t.wake:
		case <-t.ended:
			over = true
		}
		t.mu.Lock()
		if over {
			t.gap()
		}
		text, events, failed := slices.Clone(t.pending.Bytes()), t.waiting, t.err != nil
		t.pending.Reset()
		t.waiting = 0
		t.room.Broadcast()
		t.mu.Unlock()
		if len(text) > 0 && !failed {
			t.put(text, events)
		}
	}
}

// put prints text with so many events.
func (t *Tail) put(text []byte, events uint64) {
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
	if t.o.Broken != nil {
		t.o.Broken()
	}
}
