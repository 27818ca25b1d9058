package carrier

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
)

// raced: the race detector makes everything slow.
var raced bool

// TestDevelopers sends requests of three developers and of other users over many connections, pipelined and with bodies. Each
// request says who must answer it.
func TestDevelopers(t *testing.T) {
	const workers = 8
	requests := 100_000
	switch {
	case raced:
		requests = 3_000
	case testing.Short():
		requests = 10_000
	}
	var wrong, served atomic.Int64
	answer := func(name string) func(duplex) {
		return func(c duplex) {
			in := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				served.Add(1)
				if r.Header.Get("Want") != name {
					wrong.Add(1)
				}
				id := r.Header.Get("Id")
				// Some answers have a length, and some have chunks.
				text := fmt.Sprintf("HTTP/1.1 200 OK\r\nName: %s\r\nId: %s\r\nContent-Length: 2\r\n\r\nok", name, id)
				if len(id)%2 == 0 {
					text = fmt.Sprintf("HTTP/1.1 200 OK\r\nName: %s\r\nId: %s\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", name, id)
				}
				if _, err := io.WriteString(c, text); err != nil {
					return
				}
			}
		}
	}
	p := prefix("/bob/")
	f := start(t, answer("app"), func(id string, s duplex) { answer(id)(s) },
		matching("alice", 3, header("X-User", exact("alice"))),
		matching("bob", 2, httpmatch.Match{Path: &p}),
		matching("carol", 1, header("Cookie", regex(".*dev=carol.*"))),
	)
	began := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for left := requests / workers; left > 0; {
				n := min(left, 1+random.IntN(400))
				if err := f.converse(t, random, w, left, n); err != nil {
					t.Error(err)
					return
				}
				left -= n
			}
		})
	}
	wg.Wait()
	t.Logf("%d requests in %v", served.Load(), time.Since(began).Round(time.Millisecond))
	if wrong.Load() != 0 || served.Load() != int64(requests/workers*workers) {
		t.Errorf("%d requests reached the wrong one, of %d", wrong.Load(), served.Load())
	}
	counted := f.newReport().Routes
	sum := counted["alice"].Matched + counted["bob"].Matched + counted["carol"].Matched + counted["alice"].Passed
	if sum != uint64(served.Load()) || counted["alice"].Failed != 0 || counted["bob"].Overlaps == 0 {
		t.Errorf("counted %+v, served %d", counted, served.Load())
	}
}

// converse sends n requests over one connection, a few at a time, and checks who answers.
func (f *fixture) converse(t *testing.T, random *rand.Rand, worker, serial, n int) error {
	t.Helper()
	c := f.dial(t)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(6 * patience))
	in := bufio.NewReader(c)
	for n > 0 {
		batch := min(n, 1+random.IntN(5))
		var text strings.Builder
		var want []string
		for i := range batch {
			who, request := compose(random, fmt.Sprintf("%d-%d-%d-%d", worker, serial, n, i))
			want = append(want, who)
			text.WriteString(request)
		}
		if _, err := io.WriteString(c, text.String()); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		for i, who := range want {
			r, err := http.ReadResponse(in, nil)
			if err != nil {
				return fmt.Errorf("answer for %s: %w", who, err)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_ = r.Body.Close()
			if id := fmt.Sprintf("%d-%d-%d-%d", worker, serial, n, i); r.Header.Get("Name") != who || r.Header.Get("Id") != id {
				return fmt.Errorf("%s answered with ID %s, want %s with %s", r.Header.Get("Name"), r.Header.Get("Id"), who, id)
			}
		}
		n -= batch
	}
	return nil
}

// compose makes a random request, and says who must get it.
func compose(random *rand.Rand, id string) (who, text string) {
	who, path, fields := "app", "/x", ""
	carol, bob, alice := random.IntN(4) == 0, random.IntN(4) == 0, random.IntN(4) == 0
	if carol {
		who, fields = "carol", fields+"cookie: a=b; dev=carol\r\n"
	}
	if bob {
		who, path = "bob", "/bob/x?y"
	}
	if alice {
		who, fields = "alice", fields+"x-user: alice\r\n"
	}
	body, framing := "", ""
	// Bodies look like requests of others.
	other := "GET /bob/ HTTP/1.1\r\nX-User: alice\r\nWant: nobody\r\n\r\n"
	switch random.IntN(4) {
	case 0:
		body = other
		framing = fmt.Sprintf("Content-Length: %d\r\n", len(body))
	case 1:
		body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(other), other)
		framing = "Transfer-Encoding: chunked\r\n"
	}
	return who, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: web\r\nWant: %s\r\nId: %s\r\n%s%s\r\n%s", path, who, id, fields, framing, body)
}
