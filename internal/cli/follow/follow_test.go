package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// fakePod writes a file of packets, block by block.
type fakePod struct {
	w     results.BlockSink
	ended chan struct{}
}

// world streams the files of fake Pods.
type world struct {
	t *testing.T
	*Stream

	out  *output
	pods chan *fakePod
}

// output is what the stream has written.
type output struct {
	mu   sync.Mutex
	b    bytes.Buffer
	fail bool
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fail {
		return 0, errors.New("closed")
	}
	return o.b.Write(b)
}

func newWorld(t *testing.T, delay time.Duration) *world {
	t.Helper()
	w := &world{t: t, out: &output{}, pods: make(chan *fakePod, 10)}
	w.Stream = New(t.Context(), Options{Delay: delay, Out: w.out, Comment: "shop/web", Blocks: func(ctx context.Context, _, _ string, _ bool, to results.BlockSink) error {
		p := &fakePod{w: to, ended: make(chan struct{})}
		w.pods <- p
		select {
		case <-p.ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	return w
}

// update says that a Pod has a file.
func update(name string) results.Update {
	return results.Update{UID: name, Account: &account.Account{Files: []account.File{{Name: name + ".pcapng"}}}}
}

// join adds a Pod with one interface.
func (w *world) join(name string) *fakePod {
	w.t.Helper()
	w.Update(update(name))
	p := <-w.pods
	w.write(p, pcapng.AppendSection(nil, &pcapng.Section{Comments: []string{name}}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: name + "/eth0", LinkType: pcapng.LinkTypeEthernet}))
	return p
}

func (w *world) write(p *fakePod, blocks ...[]byte) {
	w.t.Helper()
	for _, b := range blocks {
		if _, err := p.w.Write(b); err != nil {
			w.t.Error(err)
		}
	}
}

func packet(time uint64) []byte {
	return pcapng.AppendPacket(nil, &pcapng.Packet{Time: time, Data: []byte("data"), Length: 4})
}

// finish ends the stream and returns its packets as INTERFACE TIME.
func (w *world) finish() (Result, []string, []*pcapng.Statistics) {
	w.t.Helper()
	r, err := w.Finish(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var got []string
	var stats []*pcapng.Statistics
	reader := pcapng.NewReader(&w.out.b)
	for {
		b, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return r, got, stats
		}
		if err != nil {
			w.t.Fatal(err)
		}
		switch b := b.(type) {
		case *pcapng.Packet:
			got = append(got, fmt.Sprint(reader.Interfaces()[b.Interface].Name, " ", b.Time))
		case *pcapng.Statistics:
			stats = append(stats, b)
		}
	}
}

// Packets of Pods that arrive out of order leave in the order of time, also those of a Pod that joins later.
func TestOrder(t *testing.T) {
	w := newWorld(t, 300*time.Millisecond)
	a := w.join("a")
	w.write(a, packet(10), packet(30))
	b := w.join("b")
	w.write(b, packet(20), packet(40))
	w.write(a, packet(50))
	close(a.ended)
	close(b.ended)
	r, got, _ := w.finish()
	if want := "[a/eth0 10 b/eth0 20 a/eth0 30 b/eth0 40 a/eth0 50]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	want := Result{Pods: 2, Packets: 5, Bytes: r.Bytes, Read: map[string]int64{"a": 3, "b": 2}}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// A packet leaves after the delay, although nothing follows it. One that comes after later ones have left is late, and not lost.
func TestDelay(t *testing.T) {
	w := newWorld(t, 100*time.Millisecond)
	a, b := w.join("a"), w.join("b")
	began := time.Now()
	w.write(a, packet(30))
	for {
		w.out.mu.Lock()
		n := bytes.Count(w.out.b.Bytes(), []byte("data"))
		w.out.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Since(began) > 5*time.Second {
			t.Fatal("the packet never leaves")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if waited := time.Since(began); waited < 100*time.Millisecond {
		t.Errorf("it left after %s", waited)
	}
	w.write(b, packet(20))
	close(a.ended)
	close(b.ended)
	r, got, _ := w.finish()
	if fmt.Sprint(got) != "[a/eth0 30 b/eth0 20]" || r.Late != 1 {
		t.Errorf("%v, %+v", got, r)
	}
}

// packets are so many in what was written so far.
func (o *output) packets() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Count(o.b.Bytes(), []byte("data"))
}

// await waits until so many packets were written, and fails if there are more.
func (w *world) await(n int) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); w.out.packets() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d packets are written, want %d", w.out.packets(), n)
		}
	}
	time.Sleep(2 * tick)
	if got := w.out.packets(); got != n {
		w.t.Fatalf("%d packets are written, want %d", got, n)
	}
}

// A packet leaves as soon as all Pods have sent what they captured up to its time, long before its delay is over. Pods that may have
// packets soon, and those that do not say how far they are, keep it; Pods that have ended do not.
func TestPacketsLeaveWhenAllPodsAreAsFar(t *testing.T) {
	w := newWorld(t, time.Minute)
	a, b := w.join("a"), w.join("b")
	w.write(a, packet(10), packet(30))
	w.write(b, packet(20), packet(40))
	a.w.Until(35)
	w.await(0)
	b.w.Until(20)
	w.await(2)
	b.w.Until(100)
	w.await(3)

	w.Update(results.Update{UID: "c", Phase: v1alpha1.PhasePending})
	a.w.Until(100)
	w.await(3)
	w.Update(results.Update{UID: "c", Phase: v1alpha1.PhaseFailed})
	w.await(4)

	w.write(a, packet(110))
	a.w.Until(120)
	w.await(4)
	close(b.ended)
	w.await(5)
	close(a.ended)
	r, got, _ := w.finish()
	if want := "[a/eth0 10 b/eth0 20 a/eth0 30 b/eth0 40 a/eth0 110]"; fmt.Sprint(got) != want || r.Late != 0 {
		t.Errorf("%v, %d late, want %s", got, r.Late, want)
	}
}

// What the stream leaves out counts as dropped in its statistics; what was captured before it began does not. Of the packets before the
// first one of a Pod that had to wait, those are from before the stream that were in its file when the stream learned of it.
func TestGaps(t *testing.T) {
	for name, tc := range map[string]struct {
		fromStart bool
		known     int64  // packets in the file when the stream learned of it
		before    uint64 // packets of the gap before the first packet
		waited    bool
		current   bool // the stream had all packets before that gap
		want      Result
	}{
		"behind at once":             {before: 7, want: Result{Earlier: 7, Skipped: 5}},
		"after waiting":              {known: 4, before: 7, waited: true, want: Result{Earlier: 4, Waited: 3, Skipped: 5}},
		"after waiting a little":     {known: 10, before: 7, waited: true, want: Result{Earlier: 7, Skipped: 5}},
		"a new Pod after waiting":    {before: 7, waited: true, want: Result{Waited: 7, Skipped: 5}},
		"later than the stream":      {known: 4, before: 7, current: true, want: Result{Skipped: 12}},
		"from the start":             {fromStart: true, known: 4, before: 7, want: Result{Skipped: 12}},
		"from the start, by waiting": {fromStart: true, known: 4, before: 7, waited: true, want: Result{Waited: 7, Skipped: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 50*time.Millisecond)
			w.o.FromStart = tc.fromStart
			u := update("a")
			u.Account.Packets = tc.known
			w.Update(u)
			a := w.join("a")
			if tc.current {
				a.w.Until(5)
			}
			a.w.Gap(tc.before-1, tc.waited)
			a.w.Gap(1, tc.waited)
			w.write(a, packet(10))
			a.w.Gap(5, tc.waited)
			accepted, dropped, delivered := 2+tc.before+1+5+1, uint64(2), tc.before+1+5+1
			w.write(a, packet(20), pcapng.AppendStatistics(nil, &pcapng.Statistics{Time: 20, FilterAccept: &accepted, IfDrop: &dropped, Delivered: &delivered}))
			close(a.ended)
			r, _, stats := w.finish()
			got := Result{Earlier: r.Earlier, Waited: r.Waited, Skipped: r.Skipped}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			if len(stats) != 1 {
				t.Fatalf("statistics %+v", stats)
			}
			st := stats[0]
			if *st.IfDrop != 2+r.Skipped+r.Waited || *st.Delivered != 2 || *st.FilterAccept != *st.IfDrop+*st.Delivered+r.Earlier {
				t.Errorf("%d passed the filter, %d dropped, %d delivered; want 2 delivered, and as dropped 2 and what is left out: %+v",
					*st.FilterAccept, *st.IfDrop, *st.Delivered, got)
			}
		})
	}
}

// Pods that wait for their places begin later, and the packets that this costs them count as dropped at their own interfaces.
func TestMorePodsThanPlaces(t *testing.T) {
	const pods, places, lost = 20, 16, 3
	free := make(chan struct{}, places)
	out := &output{}
	w := &world{t: t, out: out}
	w.Stream = New(t.Context(), Options{Delay: 10 * time.Millisecond, Out: out, Blocks: func(_ context.Context, uid, _ string, _ bool, to results.BlockSink) error {
		waited := false
		select {
		case free <- struct{}{}:
		default:
			waited = true
			free <- struct{}{}
		}
		defer func() { <-free }()
		p := &fakePod{w: to}
		w.write(p, pcapng.AppendSection(nil, &pcapng.Section{}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: uid, LinkType: pcapng.LinkTypeEthernet}))
		if waited {
			to.Gap(lost, true)
		}
		time.Sleep(50 * time.Millisecond)
		w.write(p, packet(10))
		return nil
	}})
	for n := range pods {
		w.Update(update(fmt.Sprint(n)))
	}
	r, got, stats := w.finish()
	if r.Waited != lost*(pods-places) || r.Earlier+r.Skipped != 0 || len(got) != pods || len(stats) != pods-places {
		t.Errorf("%+v, %d packets, statistics of %d Pods, want %d packets lost by each of %d", r, len(got), len(stats), lost, pods-places)
	}
	for _, st := range stats {
		if *st.IfDrop != lost || *st.Delivered != 1 {
			t.Errorf("%d dropped and %d delivered at an interface, want %d and 1", *st.IfDrop, *st.Delivered, lost)
		}
	}
}

// A Pod whose file was gone before its first packet came is left out. It is an error if the file is gone later, or cannot be read.
func TestFileIsGone(t *testing.T) {
	gone := &results.Error{Code: http.StatusGone, Message: "the files of Pod b are gone", FromManager: true}
	for name, tc := range map[string]struct {
		err   error
		first []byte // of the Pod
		fails bool
	}{
		"before its first packet": {err: gone},
		"after some packets":      {err: gone, first: packet(20), fails: true},
		"by another server":       {err: &results.Error{Code: http.StatusGone}, fails: true},
		"it is refused":           {err: &results.Error{Code: http.StatusForbidden, FromManager: true}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, out: &output{}}
			w.Stream = New(t.Context(), Options{Delay: 10 * time.Millisecond, Out: w.out, Blocks: func(_ context.Context, uid, file string, _ bool, to results.BlockSink) error {
				p := &fakePod{w: to}
				w.write(p, pcapng.AppendSection(nil, &pcapng.Section{}), pcapng.AppendInterface(nil, &pcapng.Interface{Name: uid, LinkType: pcapng.LinkTypeEthernet}))
				if uid == "a" {
					w.write(p, packet(10))
					return nil
				}
				if tc.first != nil {
					w.write(p, tc.first)
				}
				return fmt.Errorf("follow %s: %w", file, tc.err)
			}})
			w.Update(update("a"))
			w.Update(update("b"))
			r, err := w.Finish(t.Context())
			if (err != nil) != tc.fails {
				t.Fatalf("Finish: %v", err)
			}
			if diff := cmp.Diff(map[string]int64{"a": 1}, r.Read); !tc.fails && (diff != "" || r.Packets != 1 || r.Pods != 1 || !r.Gone["b"]) {
				t.Errorf("%d packets of %d Pods, gone %v, read (-want +got):\n%s", r.Packets, r.Pods, r.Gone, diff)
			}
		})
	}
}

// Names go out before later packets.
func TestNames(t *testing.T) {
	w := newWorld(t, 50*time.Millisecond)
	a := w.join("a")
	w.AddNames(&pcapng.Names{Records: []pcapng.Name{{Address: netip.MustParseAddr("10.0.0.1"), Name: "shop/a"}}})
	w.write(a, packet(10))
	close(a.ended)
	if _, err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	named := false
	for r := pcapng.NewReader(&w.out.b); ; {
		b, err := r.Next()
		if err != nil {
			t.Fatalf("no packet: %v", err)
		}
		switch b := b.(type) {
		case *pcapng.Names:
			named = b.Records[0].Name == "shop/a"
		case *pcapng.Packet:
			if !named {
				t.Error("the packet comes before the name")
			}
			return
		}
	}
}

// A reader that has ended ends the stream.
func TestClosedOutput(t *testing.T) {
	closed := make(chan struct{})
	out := &output{fail: true}
	s := New(t.Context(), Options{Out: out, OnWriteError: func() { close(closed) }})
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Fatal("nobody was told")
	}
	if _, err := s.Finish(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestQueueFull(t *testing.T) {
	var q queue
	now := time.Now()
	for n := range uint64(10) {
		q.push(n, make([]byte, 100), now.Add(time.Duration(n)*arrivalSpan))
	}
	q.advance(now.Add(-time.Second), false)
	if q.until != 0 {
		t.Errorf("packets up to %d may leave, although none has waited", q.until)
	}
	q.shrink(q.Bytes() / 2)
	if q.until != 4 {
		t.Errorf("packets up to %d may leave, want 4", q.until)
	}
}
