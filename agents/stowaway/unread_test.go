package stowaway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestStreamsThatAreNotRead checks that they neither stop others nor become too many.
func TestStreamsThatAreNotRead(t *testing.T) {
	w := newShop(t)
	w.connect(w.alice, "alice")
	p := w.mustPeer(w.one)
	watch(t, p).await(t, 5*time.Second, "a")
	const unread = maxStalled + 8
	var ended sync.WaitGroup
	cut := make(chan struct{}, unread)
	data := strings.Repeat("x", 64<<10)
	for range unread {
		s, err := p.Open(t.Context(), tunnel.PathOpen+"a", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ended.Go(func() {
			for {
				if _, err := io.WriteString(s, data); err != nil {
					cut <- struct{}{}
					return
				}
			}
		})
	}
	for end := time.Now().Add(20 * time.Second); len(cut) < 8 && time.Now().Before(end); {
		if got, err := say(t, p, "a", "still here"); err != nil || !strings.HasSuffix(got, "still here") {
			t.Fatalf("another stream reads %q, %v", got, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := len(cut); n < 8 || n == unread {
		t.Errorf("%d streams of %d were ended, want those above %d", n, unread, maxStalled)
	}
	p.Close()
	ended.Wait()
}

func TestConfinement(t *testing.T) {
	good := confinement{noNewPrivs: true, seccomp: true}
	for name, tc := range map[string]struct {
		change func(*confinement)
		want   string
	}{
		"confined":     {change: func(*confinement) {}},
		"root":         {change: func(c *confinement) { c.root = true }, want: "runAsNonRoot"},
		"capabilities": {change: func(c *confinement) { c.capabilities = 1 << 21 }, want: "0x200000 (drop ALL)"},
		"privileges":   {change: func(c *confinement) { c.noNewPrivs = false }, want: "allowPrivilegeEscalation"},
		"seccomp":      {change: func(c *confinement) { c.seccomp = false }, want: "seccompProfile"},
		"token":        {change: func(c *confinement) { c.token = true }, want: "automountServiceAccountToken"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good
			tc.change(&c)
			err := c.check()
			if (err != nil) != (tc.want != "") || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("error %v, want one about %q", err, tc.want)
			}
		})
	}
	if os.Getuid() == 0 {
		if err := CheckConfinement(); err == nil || !strings.Contains(err.Error(), "runs as root") {
			t.Errorf("as root: %v", err)
		}
	}
}

// FuzzState checks that no State is accepted whose routes a path cannot name.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"version":1,"generation":"x","routes":[{"id":"r","clientKey":"k","port":1,"pods":["p"]}],"carriers":[{"pod":"p","key":"c"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := http.NewRequest(http.MethodPut, tunnel.PathState, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		s := newServer(&Config{Log: slog.New(slog.DiscardHandler), ManagerKey: "m"})
		answer := &recorder{header: http.Header{}}
		s.putState(answer, r)
		if (answer.status == http.StatusNoContent) != (s.index.generation != "") {
			t.Errorf("status %d, generation %q", answer.status, s.index.generation)
		}
		for id := range s.index.routes {
			if strings.ContainsAny(id, "/%?# ") {
				t.Errorf("route %q", id)
			}
		}
	})
}

// FuzzReports checks that a carrier's reports never say anything about other Pods.
func FuzzReports(f *testing.F) {
	f.Add([]byte(`{"pod":"p","routes":{"a":{},"b":{}},"requests":[{"route":"b","path":"/"}],"steered":[1]}` + "\n"))
	f.Add([]byte("[]\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newServer(&Config{Log: slog.New(slog.DiscardHandler), ManagerKey: "m"})
		i, err := newIndex(&tunnel.State{
			Version: tunnel.Version, Generation: "x", Carriers: []tunnel.Carrier{{Pod: "p", Key: "k"}},
			Routes: []tunnel.Route{{ID: "a", ClientKey: "a", Port: 1, Pods: []string{"p"}}, {ID: "b", ClientKey: "b", Port: 1, Pods: []string{"q"}}},
		}, "m")
		if err != nil {
			t.Fatal(err)
		}
		s.apply(i)
		other := &session{id: "b", streams: map[*stream]struct{}{}}
		s.sessions["b"] = other
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // one line only
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, tunnel.PathReport, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		s.readReports(&recorder{header: http.Header{}}, r, s.carriers["p"])
		if _, ok := s.carriers["p"].counters["b"]; ok || len(other.pending) > 0 {
			t.Errorf("counters %v, requests %v", s.carriers["p"].counters, other.pending)
		}
	})
}

// recorder keeps the status of an answer.
type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }
