package results

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/wire/connlimit"
)

// holder asks for places.
type holder struct{ namespace, user string }

// TestPlaces: each case fills places of 8 (6 for a namespace, 4 for a user) and asks for one more.
func TestPlaces(t *testing.T) {
	spread := func(n int, of func(i int) holder) []holder {
		var all []holder
		for i := range n {
			all = append(all, of(i))
		}
		return all
	}
	for name, tc := range map[string]struct {
		held     []holder
		age      time.Duration // of those held
		next     holder
		wantCode int // 0: has a place
		wantSays string
		wantEnd  string // the namespace that gives a place
	}{
		"room":                {held: spread(3, func(int) holder { return holder{"a", "mallory"} }), next: holder{"a", "mallory"}},
		"one user, one token": {held: spread(4, func(int) holder { return holder{"a", "mallory"} }), next: holder{"a", "mallory"}, wantCode: 429, wantSays: "this user has 4 streams open"},
		"one user, many namespaces": {
			held: spread(4, func(i int) holder { return holder{fmt.Sprint("a", i), "mallory"} }),
			next: holder{"a9", "mallory"}, wantCode: 429, wantSays: "this user has 4 streams open",
		},
		"one namespace, many ServiceAccounts": {
			held: spread(6, func(i int) holder { return holder{"a", fmt.Sprint("sa-", i)} }),
			next: holder{"a", "sa-9"}, wantCode: 429, wantSays: "captures in namespace a have 6 streams open",
		},
		"another namespace beside it": {held: spread(6, func(i int) holder { return holder{"a", fmt.Sprint("sa-", i)} }), next: holder{"shop", "alice"}},
		"two namespaces take all: the larger one yields": {
			held: append(spread(5, func(i int) holder { return holder{"a", fmt.Sprint("sa-", i)} }), spread(3, func(i int) holder { return holder{"b", fmt.Sprint("sb-", i)} })...),
			next: holder{"shop", "alice"}, wantEnd: "a",
		},
		"the larger one gets no more": {
			held: append(spread(5, func(i int) holder { return holder{"a", fmt.Sprint("sa-", i)} }), spread(3, func(i int) holder { return holder{"b", fmt.Sprint("sb-", i)} })...),
			next: holder{"a", "sa-9"}, wantCode: 503, wantSays: "all 8 places for streams",
		},
		"many namespaces of one user yield": {
			held: append(spread(4, func(i int) holder { return holder{fmt.Sprint("a", i), "mallory"} }), spread(4, func(i int) holder { return holder{fmt.Sprint("b", i), fmt.Sprint("user-", i)} })...),
			next: holder{"shop", "alice"}, wantEnd: "a0",
		},
		"as many namespaces as places, new": {
			held: spread(8, func(i int) holder { return holder{fmt.Sprint("a", i), fmt.Sprint("sa-", i)} }),
			next: holder{"shop", "alice"}, wantCode: 503, wantSays: "try again",
		},
		"as many namespaces as places, after their slice": {
			held: spread(8, func(i int) holder { return holder{fmt.Sprint("a", i), fmt.Sprint("sa-", i)} }), age: streamSlice,
			next: holder{"shop", "alice"}, wantEnd: "a0",
		},
		"no slice takes from an equal": {
			held: spread(8, func(i int) holder { return holder{fmt.Sprint("a", i), fmt.Sprint("sa-", i)} }), age: time.Hour,
			next: holder{"a3", "sa-9"}, wantCode: 503, wantSays: "try again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Now())
			p := newPlaces("streams", 8, 6, 4, streamSlice, clk)
			var yielded []func() string // the namespace of a place that yields, or ""
			take := func(h holder) {
				clk.Step(time.Nanosecond) // the first is the oldest
				ctx, _, err := p.take(t.Context(), h.namespace, h.user)
				if err != nil {
					t.Fatal(err)
				}
				yielded = append(yielded, func() string {
					if errors.Is(context.Cause(ctx), errYield) {
						return h.namespace
					}
					return ""
				})
			}
			for _, h := range tc.held {
				take(h)
			}
			clk.Step(tc.age)
			_, next, err := p.take(t.Context(), tc.next.namespace, tc.next.user)
			for _, y := range yielded {
				if namespace := y(); namespace != "" {
					t.Errorf("%q yields to a request without a known right", namespace)
				}
			}
			if err == nil {
				err = p.settle(next)
			}
			wantFailure(t, err, tc.wantCode, tc.wantSays)
			got := ""
			for _, y := range yielded {
				got += y()
			}
			if got != tc.wantEnd {
				t.Errorf("%q yields, want %q", got, tc.wantEnd)
			}
		})
	}
}

// wantFailure fails the test unless err is a failure with this code that says text and when to try again; 0: no error.
func wantFailure(t *testing.T, err error, code int, text string) {
	t.Helper()
	var f *failure
	switch {
	case code == 0 && err == nil:
	case !errors.As(err, &f) || f.code != code || !strings.Contains(f.message, text) || f.header.Get("Retry-After") == "":
		t.Errorf("got %v, want %d that says %q, with Retry-After", err, code, text)
	}
}

// TestPlacesAreLeft: a place is free again, also one that had been given away, and no count stays.
func TestPlacesAreLeft(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	p := newPlaces("streams", 2, 2, 2, streamSlice, clk)
	var all []*place
	for _, user := range []string{"mallory", "mallory", "alice", "bob"} {
		_, own, err := p.take(t.Context(), "of-"+user, user)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, own)
	}
	if err := p.settle(all[2]); err != nil {
		t.Fatal(err)
	}
	// alice and mallory have one each.
	wantFailure(t, p.settle(all[3]), http.StatusServiceUnavailable, "try again")
	for _, own := range all {
		p.leave(own)
	}
	if diff := cmp.Diff(0, len(p.held)); diff != "" {
		t.Errorf("places that stay taken: %s", diff)
	}
}

// TestApplicationsAreBounded: as many requests may wait for the place of another as there are places.
func TestApplicationsAreBounded(t *testing.T) {
	p := newPlaces("streams", 4, 4, 4, streamSlice, testingclock.NewFakeClock(time.Now()))
	for i := range 4 {
		if _, _, err := p.take(t.Context(), "a", "mallory"); err != nil {
			t.Fatal(i, err)
		}
	}
	for i := range 4 {
		if _, _, err := p.take(t.Context(), fmt.Sprint("b", i), fmt.Sprint("user-", i)); err != nil {
			t.Fatal(i, err)
		}
	}
	_, _, err := p.take(t.Context(), "shop", "alice")
	wantFailure(t, err, http.StatusServiceUnavailable, "all 4 places")
}

// TestARequestWithoutTheRightEndsNoOther: the endpoint is full of one namespace's streams, and the owner of a ResultAccess
// who has lost the right asks for another. The control is the same request with the right.
func TestARequestWithoutTheRightEndsNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		right    bool
		wantCode int
		wantEnds int
	}{
		"control": {right: true, wantCode: http.StatusOK, wantEnds: 1},
		"lost":    {right: false, wantCode: http.StatusForbidden, wantEnds: 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.rights.set(tc.right, false)
			var others []context.Context
			for i := range maxDownloads {
				held, _, err := w.handler.downloads.take(t.Context(), fmt.Sprint("tenant-", i%2), fmt.Sprint("sa-", i))
				if err != nil {
					t.Fatal(err)
				}
				others = append(others, held)
			}
			if resp := w.get(webFile, nil); resp.code != tc.wantCode {
				t.Errorf("got %d, want %d", resp.code, tc.wantCode)
			}
			ends := 0
			for _, held := range others {
				if errors.Is(context.Cause(held), errYield) {
					ends++
				}
			}
			if ends != tc.wantEnds {
				t.Errorf("%d downloads of others ended, want %d", ends, tc.wantEnds)
			}
		})
	}
}

// TestOneNamespaceLeavesRoom is the review's attack: streams of nine ServiceAccounts of one namespace until none is let in
// any more, and then a stream and a download of another tenant.
func TestOneNamespaceLeavesRoom(t *testing.T) {
	w := newWorld(t)
	let := 0
	for i := range 9 * 2 * streamsPerUser {
		if _, _, err := w.handler.streams.take(t.Context(), "tenant-a", fmt.Sprint("sa-", i%9)); err == nil {
			let++
		}
	}
	if let != streamsPerNamespace {
		t.Errorf("%d streams of one namespace, want %d", let, streamsPerNamespace)
	}
	w.stream().want("web-1", sondev1.PhaseCapturing, 0)
	if resp := w.get(webFile, nil); resp.code != http.StatusOK {
		t.Errorf("a download beside them: got %d", resp.code)
	}
}

// yieldAll gives all places away.
func yieldAll(p *places) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h := range p.held {
		h.end(errYield)
	}
}

// TestAStreamEndsAndContinues: a stream that is over, and one that yields, breaks off, because a complete answer would
// mean that the capture has ended. The record says that neither side failed, and lines continue at their byte.
func TestAStreamEndsAndContinues(t *testing.T) {
	yield := func(w *world, _ *testingclock.FakeClock) { yieldAll(w.handler.streams) }
	for name, do := range map[string]func(*world, *testingclock.FakeClock){
		"its time is over": func(_ *world, clk *testingclock.FakeClock) { clk.Step(streamLifetime) },
		"it yields":        yield,
	} {
		withClock := func(w *world) *testingclock.FakeClock {
			clk := testingclock.NewFakeClock(time.Now())
			w.handler.Clock = clk
			return clk
		}
		t.Run("progress: "+name, func(t *testing.T) {
			w := newWorld(t)
			clk := withClock(w)
			l := w.stream()
			l.want("web-1", sondev1.PhaseCapturing, 0)
			do(w, clk)
			if got, ok := l.next(); ok || !errors.Is(l.scan.Err(), io.ErrUnexpectedEOF) {
				t.Errorf("got %+v, %v; want the stream to break off", got, l.scan.Err())
			}
			w.stream().want("web-1", sondev1.PhaseCapturing, 0)
		})
		t.Run("lines: "+name, func(t *testing.T) {
			w := newTraceWorld(t)
			clk := withClock(w)
			r := bufio.NewReader(w.get(traceLive, nil).body)
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			do(w, clk)
			if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want the stream to break off", err)
			}
			if note := <-w.events.Events; !strings.Contains(note, "(interrupted)") {
				t.Errorf("event %q", note)
			}
			next := bufio.NewReader(w.get(fmt.Sprintf("%s?from=%d", traceLive, len(line)), nil).body)
			if got, err := next.ReadString('\n'); err != nil || got != fmt.Sprintf("from=%d\n", len(line)) {
				t.Errorf("continued with %q, %v", got, err)
			}
		})
	}
}

// TestADownloadYields: a download whose place is taken breaks off and is continued by a range.
func TestADownloadYields(t *testing.T) {
	w := newWorld(t)
	w.keeper.content = make([]byte, 64<<20) // more than sockets hold
	resp := w.get(webFile, nil)
	if _, err := io.ReadFull(resp.body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	yieldAll(w.handler.downloads)
	if _, err := io.ReadAll(resp.body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if note := <-w.events.Events; !strings.Contains(note, "(interrupted)") {
		t.Errorf("event %q", note)
	}
}

// TestAnAnswerThatNobodyReads keeps its place until its client has taken it, or takes too long. Then the connection is reset.
func TestAnAnswerThatNobodyReads(t *testing.T) {
	const size = 60_000 // less than the kernel takes
	w := newWorld(t)
	w.handler.untaken = 3 * time.Second
	s := httptest.NewUnstartedServer(w.handler)
	s.Listener, s.Config.ConnContext = connlimit.Listen(s.Listener, 8), connlimit.Context
	s.Start()
	t.Cleanup(s.Close)
	places := func() int {
		w.handler.downloads.mu.Lock()
		defer w.handler.downloads.mu.Unlock()
		return len(w.handler.downloads.held)
	}
	ask := func(window int) *net.TCPConn {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		tcp := conn.(*net.TCPConn)
		_ = tcp.SetReadBuffer(window)
		_ = tcp.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprintf(tcp, "GET %s HTTP/1.1\r\nHost: a\r\n%s: %s\r\nRange: bytes=0-%d\r\n\r\n", webFile, TokenHeader, token, size-1)
		<-w.events.Events // all is with the kernel
		return tcp
	}
	unread := ask(4 << 10)
	if n := places(); n != 1 {
		t.Errorf("%d places are taken, want that of the answer that nobody reads", n)
	}
	for range 100 {
		if places() == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := io.Copy(io.Discard, unread); places() > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d places are taken, and the client gets %v, want a reset", places(), err)
	}
	read := ask(256 << 10)
	resp, err := http.ReadResponse(bufio.NewReader(read), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); len(b) != size || err != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// yielding are reviews during which the request's place is given away.
type yielding struct{ h *Handler }

func (y yielding) ReviewPods(ctx context.Context, _ string, _ access.Requester, _ string) (access.Decision, error) {
	yieldAll(y.h.downloads)
	<-ctx.Done()
	return access.Decision{}, ctx.Err()
}

func (yielding) ReviewNodes(context.Context, string, access.Requester) (access.Decision, error) {
	return access.Decision{}, nil
}

// TestAYieldBeforeTheAnswer: a request whose place is taken before its answer has begun gets an answer that says to come back. It is no
// failure of the manager.
func TestAYieldBeforeTheAnswer(t *testing.T) {
	w := newWorld(t)
	w.handler.Reviews = yielding{w.handler}
	resp := w.get(webFile, nil)
	w.fails(resp, http.StatusServiceUnavailable, "given to a namespace that has fewer downloads open: try again")
	if resp.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}
