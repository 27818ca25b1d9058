package carrier

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestShortMemory: while memory is short the app gets new connections, and a connection that is not read ends. Others go on.
func TestShortMemory(t *testing.T) {
	app, plain := servers()
	f := start(t, app, func(id string, s duplex) {
		in := bufio.NewReader(s)
		line, err := in.Peek(len("GET /flood"))
		if err != nil || string(line) != "GET /flood" {
			plain(id, peeked{s, in})
			return
		}
		_, _ = io.WriteString(s, "HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
		for b := make([]byte, 64<<10); ; {
			if _, err := s.Write(b); err != nil {
				return
			}
		}
	}, byUser("cli", "alice"))
	await(t, "steering", func() bool { return len(f.pod.steered()) == 1 })
	slow, good := f.dial(t), f.dial(t)
	_, _ = io.WriteString(slow, request("GET /flood", "X-User: alice"))
	await(t, "a connection that is not read", func() bool { return len(f.waiting(time.Now())) == 1 })
	said := bufio.NewReader(good)
	say := func() {
		t.Helper()
		_, _ = io.WriteString(good, alice)
		r, err := http.ReadResponse(said, nil)
		if err != nil {
			t.Fatal("a connection that is read:", err)
		}
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != "cli" {
			t.Errorf("answer %q, %v", b, err)
		}
		_ = r.Body.Close()
	}
	say()
	f.over.Store(1)
	await(t, "the end of steering", func() bool {
		s := f.pod.steered()
		return !s[len(s)-1].on
	})
	if _, err := io.Copy(io.Discard, slow); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection that is not read ends with %v", err)
	}
	say()
	f.over.Store(0)
	await(t, "steering again", func() bool {
		s := f.pod.steered()
		return s[len(s)-1].on
	})
}

type peeked struct {
	duplex
	in *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.in.Read(b) }

// TestCrowdedHeads: when many long heads take all memory for them, the app answers further ones, whole. Short ones still match.
func TestCrowdedHeads(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	long := request("GET /"+strings.Repeat("a", smallBuffer), "X-User: alice")
	f.awaitAnswer(t, long, "cli")
	for range maxLarge {
		_, _ = io.WriteString(f.dial(t), long[:len(long)-2])
	}
	await(t, "all large buffers in use", func() bool { return largeInUse.Load() == maxLarge })
	f.awaitAnswer(t, long, "app")
	f.awaitAnswer(t, alice, "cli")
	f.closeAll()
	await(t, "the return of the buffers", func() bool { return largeInUse.Load() == 0 })
}

// readAnswer returns the body of a response on a connection that stays open.
func readAnswer(t *testing.T, c io.Reader) string {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestIdleBuffers: connections that wait for a request or a response hold no large buffer, and those that are copied leave some for long
// heads.
func TestIdleBuffers(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	long := request("GET /"+strings.Repeat("a", smallBuffer), "X-User: alice")
	for range maxLarge {
		d := f.dial(t)
		_, _ = io.WriteString(d, long)
		if got := readAnswer(t, d); got != "cli" {
			t.Fatalf("%s answers, want cli", got)
		}
	}
	await(t, "the return of the buffers", func() bool { return largeInUse.Load() == 0 })
	post := strings.Replace(strings.Replace(long, "GET", "POST", 1), "\r\n", "\r\nContent-Length: 10\r\n", 1)
	for range maxLarge { // they wait for their bodies
		_, _ = io.WriteString(f.dial(t), post)
	}
	toApp := strings.Replace(strings.Replace(post, "alice", "eve", 1), "Content-Length: 10\r\n", "Content-Length: 70000\r\n", 1)
	for range maxLarge {
		_, _ = io.WriteString(f.dial(t), toApp)
	}
	f.awaitAnswer(t, long, "cli")
	await(t, "the return of the buffers", func() bool { return largeInUse.Load() == 0 })
	grown := make([]buffer, maxLarge)
	for i := range grown {
		grown[i].full = true
		grown[i].grow()
	}
	f.awaitAnswer(t, long, "cli")
	for i := range grown {
		grown[i].free()
	}
}

// TestPinnedHeadIsForgotten: a connection that goes to the app because of its head does not keep the head's texts.
func TestPinnedHeadIsForgotten(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	d := f.dial(t)
	_, _ = io.WriteString(d, request("GET /"+strings.Repeat("a", smallBuffer), strings.Repeat("a: b\r\n", maxFields)+"a: b"))
	if got := readAnswer(t, d); got != "app" {
		t.Fatalf("%s answers, want app", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if c.head.Path != "" {
			t.Errorf("the connection keeps %d bytes of its head", len(c.head.Path))
		}
	}
}

// TestManyFields: a head with too many fields goes to the app.
func TestManyFields(t *testing.T) {
	app, client := servers()
	f := start(t, app, client, byUser("cli", "alice"))
	head := func(fields int) string {
		return request("GET /", "X-User: alice", strings.TrimSuffix(strings.Repeat("a: b\r\n", fields), "\r\n"))
	}
	const others = 2 // X-User, and Host of request
	f.awaitAnswer(t, head(maxFields-others), "cli")
	f.awaitAnswer(t, head(maxFields-others+1), "app")
}
