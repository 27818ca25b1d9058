package tail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

const (
	head = `{"sonde":"trace","version":1,"pod":"%s"}` + "\n"
	line = `{"time":"1970-01-01T00:00:%02d.000000000Z","call":"openat","group":"file","pid":1,"hostPid":7,"tid":1,"hostTid":7,"uid":0,"comm":"web","ret":-1,"errno":"ENOENT","latencyNs":1500,"path":"/etc/web.conf"}` + "\n"
)

// screen records the printed text, and lets tests wait for a text. A gate, if set, delays each print.
type screen struct {
	mu   sync.Mutex
	text strings.Builder
	wake chan struct{}
	gate chan struct{}
	err  error
}

func (s *screen) print(b []byte) error {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(b)
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return s.err
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.After(10 * time.Second); !strings.Contains(s.String(), text); {
		select {
		case <-s.wake:
		case <-deadline:
			t.Fatalf("no %q in\n%s", text, s)
		}
	}
}

// pods have streams to which a test writes.
type pods struct {
	mu      sync.Mutex
	readers map[string]*io.PipeReader
	writers map[string]*io.PipeWriter
	newest  bool
}

func newPods(names ...string) *pods {
	p := &pods{readers: map[string]*io.PipeReader{}, writers: map[string]*io.PipeWriter{}}
	for _, n := range names {
		p.readers[n], p.writers[n] = io.Pipe()
	}
	return p
}

func (p *pods) stream(ctx context.Context, uid, _ string, newest bool, w io.Writer) error {
	p.mu.Lock()
	p.newest = newest
	r := p.readers[uid]
	p.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = r.CloseWithError(context.Canceled) })()
	_, err := io.Copy(w, r)
	return err
}

func (p *pods) write(t *testing.T, uid, text string) {
	t.Helper()
	if _, err := io.WriteString(p.writers[uid], text); err != nil {
		t.Error(err)
	}
}

func update(name string, files ...string) results.Update {
	u := results.Update{Pod: name, UID: name, Account: &account.Account{}}
	for _, f := range files {
		u.Account.Files = append(u.Account.Files, account.File{Name: f})
	}
	return u
}

func newScreen() *screen { return &screen{wake: make(chan struct{}, 1)} }

// Lines of several Pods are shown in the order of their arrival, with the name of the Pod.
func TestLines(t *testing.T) {
	s, p := newScreen(), newPods("web-1", "web-2")
	tail := New(t.Context(), Options{Stream: p.stream, Print: s.print})
	tail.Update(results.Update{Pod: "web-1", UID: "web-1", Error: "not yet"})
	tail.Update(update("web-1"))
	tail.Update(update("web-1", "web-1-trace_io_0.log"))
	for range 2 {
		tail.Update(update("web-1", "web-1.ndjson"))
	}
	p.write(t, "web-1", fmt.Sprintf(head, "web-1")+fmt.Sprintf(line, 5))
	s.await(t, "00:00:05.000000  1         web     openat      1.50µs  ENOENT  /etc/web.conf\n")
	tail.Update(update("web-2", "web-2.ndjson"))
	p.write(t, "web-2", fmt.Sprintf(head, "web-2")+fmt.Sprintf(line, 3))
	s.await(t, "00:00:03.000000  web-2/1 ")
	p.write(t, "web-1", fmt.Sprintf(line, 6))
	s.await(t, "00:00:06.000000  web-1/1 ")
	p.write(t, "web-2", "no JSON\n"+`{"sonde":"account","written":1,"lost":{},"complete":true}`+"\n")
	for _, w := range p.writers {
		_ = w.Close()
	}
	shown, err := tail.Finish(t.Context())
	if got := strings.Count(s.String(), "\n"); shown != 3 || err != nil || got != 3 || !p.newest {
		t.Errorf("%d events are shown in %d lines, %v:\n%s", shown, got, err, s)
	}
}

// Events beyond a limit that arrive while the screen is busy are omitted, and their number is shown.
func TestLinesThatComeTooFast(t *testing.T) {
	s, p := newScreen(), newPods("web-1")
	s.gate = make(chan struct{})
	tail := New(t.Context(), Options{Stream: p.stream, Print: s.print})
	tail.Update(update("web-1", "web-1.ndjson"))
	const events = 10_000
	p.write(t, "web-1", fmt.Sprintf(head, "web-1")+strings.Repeat(fmt.Sprintf(line, 1), events))
	close(s.gate)
	p.write(t, "web-1", fmt.Sprintf(line, 2))
	_ = p.writers["web-1"].Close()
	shown, err := tail.Finish(t.Context())
	var omitted, n uint64
	for l := range strings.Lines(s.String()) {
		if _, err := fmt.Sscanf(l, "... %d events came too fast to be shown", &n); err == nil {
			omitted += n
		}
	}
	if shown+omitted != events+1 || omitted == 0 || err != nil || shown != uint64(strings.Count(s.String(), "openat")) {
		t.Errorf("%d events are shown and %d left out, of %d; %v", shown, omitted, events+1, err)
	}
}

// JSON has all lines, each with its Pod.
func TestJSON(t *testing.T) {
	s, p := newScreen(), newPods("web-1")
	s.gate = make(chan struct{})
	tail := New(t.Context(), Options{Stream: p.stream, Print: s.print, JSON: true})
	tail.Update(update("web-1", "web-1.ndjson"))
	const events = 5000 // more than may wait
	go func() {
		p.write(t, "web-1", fmt.Sprintf(head, "web-1")+strings.Repeat(fmt.Sprintf(line, 1), events))
		_ = p.writers["web-1"].Close()
	}()
	go close(s.gate)
	shown, err := tail.Finish(t.Context())
	want := fmt.Sprintf(head, "web-1") + strings.Repeat(`{"pod":"web-1","podUid":"web-1",`+fmt.Sprintf(line, 1)[1:], events)
	if shown != events || err != nil || s.String() != want || p.newest {
		t.Errorf("%d events are shown, %v; the text is as it should be: %t", shown, err, s.String() == want)
	}
}

// When printing fails, the stream is closed and OnPrintError is called.
func TestNobodyLooks(t *testing.T) {
	s, p := newScreen(), newPods("web-1")
	s.err = io.ErrClosedPipe
	broken := make(chan struct{})
	tail := New(t.Context(), Options{Stream: p.stream, Print: s.print, OnPrintError: func() { close(broken) }})
	tail.Update(update("web-1", "web-1.ndjson"))
	p.write(t, "web-1", fmt.Sprintf(head, "web-1")+fmt.Sprintf(line, 1))
	<-broken
	if shown, err := tail.Finish(t.Context()); shown != 0 || err != nil {
		t.Errorf("%d events are shown, %v", shown, err)
	}
}

// A stream that does not end after the trace is closed. The error of a failed stream is returned.
func TestFinish(t *testing.T) {
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		stream func(context.Context) error
		leave  bool
		want   error
	}{
		"it breaks":       {stream: func(context.Context) error { return refused }, want: refused},
		"the user leaves": {stream: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, leave: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			tail := New(ctx, Options{
				JSON: true, Print: func([]byte) error { return nil },
				Stream: func(ctx context.Context, _, _ string, _ bool, _ io.Writer) error { return tc.stream(ctx) },
			})
			for n := range 2 * maxStreams { // more Pods than streams
				tail.Update(update(fmt.Sprint("web-", n), "web.ndjson"))
			}
			if tc.leave {
				cancel()
			}
			if _, err := tail.Finish(ctx); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}

// Lines for a terminal have no characters that could control it.
func TestJSONOnATerminal(t *testing.T) {
	for terminal, want := range map[bool]string{true: `\u009b2J\u202e`, false: "\u009b2J\u202e"} {
		s, p := newScreen(), newPods("web-1")
		tail := New(t.Context(), Options{Stream: p.stream, Print: s.print, JSON: true, Terminal: terminal})
		tail.Update(update("web-1", "web-1.ndjson"))
		p.write(t, "web-1", fmt.Sprintf(head, "\u009b2J\u202e")+strings.Replace(fmt.Sprintf(line, 5), "/etc/web.conf", "\u009b2J\u202e", 1))
		if err := p.writers["web-1"].Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := tail.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.String(); strings.Count(got, want) != 2 || strings.Count(got, "\n") != 2 {
			t.Errorf("want %q twice in\n%q", want, got)
		}
	}
}
