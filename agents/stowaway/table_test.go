package stowaway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestTable checks that a carrier reads what the State says.
func TestTable(t *testing.T) {
	quote := `"}]{<` + strings.Repeat("ü", 100)
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	state := &tunnel.State{Version: tunnel.Version, Generation: "x", Routes: []tunnel.Route{
		{ID: "plain", Name: "shop/plain", Created: at, ClientKey: "a", Port: 80, Pods: []string{"p"}},
		{
			ID: "all", Name: "shop/all", Created: at.Add(1), ClientKey: "b", Port: 81, Pods: []string{"q", "p"}, ProbesToClient: true, GracePeriod: time.Minute,
			Match: &httpmatch.Match{Path: &httpmatch.Text{Exact: &quote}, Headers: []httpmatch.Header{{Name: "x", Text: httpmatch.Text{Prefix: &quote}}}},
		},
		{ID: "other", Name: "shop/other", Created: at, ClientKey: "c", Port: 80, Pods: []string{"q"}},
	}}
	i, err := newIndex(state, "manager")
	if err != nil {
		t.Fatal(err)
	}
	var of table
	want := tunnel.Table{Version: tunnel.Version}
	for n, r := range i.byPod["p"] {
		from := state.Routes[n]
		of = append(of, tableEntry{r, n == 1})
		want.Routes = append(want.Routes, tunnel.TableRoute{
			ID: from.ID, Created: from.Created, Port: from.Port, Match: from.Match, ProbesToClient: from.ProbesToClient, GracePeriod: from.GracePeriod, Live: n == 1,
		})
	}
	read := func(of table, onlyLive bool) (got tunnel.Table) {
		var line bytes.Buffer
		if err := of.write(&line, onlyLive); err != nil {
			t.Fatal(err)
		}
		if b := line.Bytes(); bytes.IndexByte(b, '\n') != len(b)-1 {
			t.Errorf("not one line: %q", b)
		}
		if err := json.Unmarshal(line.Bytes(), &got); err != nil {
			t.Fatalf("%q: %v", line.Bytes(), err)
		}
		return got
	}
	if diff := cmp.Diff(want, read(of, false)); diff != "" {
		t.Errorf("-State +Table:\n%s", diff)
	}
	if diff := cmp.Diff(tunnel.Table{Version: tunnel.Version, Live: &[]string{"all"}}, read(of, true)); diff != "" {
		t.Errorf("live ones:\n%s", diff)
	}
	if diff := cmp.Diff(tunnel.Table{Version: tunnel.Version, Routes: []tunnel.TableRoute{}}, read(nil, false)); diff != "" {
		t.Errorf("no routes:\n%s", diff)
	}
	if diff := cmp.Diff(tunnel.Table{Version: tunnel.Version, Live: &[]string{}}, read(nil, true)); diff != "" {
		t.Errorf("no live ones:\n%s", diff)
	}
}

// lines reads the lines of a carrier.
type lines struct {
	mu    sync.Mutex
	all   []tunnel.Table
	bytes int
}

func readLines(tb testing.TB, p *tunnel.Peer, header http.Header) *lines {
	tb.Helper()
	r, err := tunnel.NewRequest(tb.Context(), http.MethodGet, tunnel.PathRoutes, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.Header = header
	response, err := p.Do(r) //nolint:bodyclose // it is read until the peer goes
	if err != nil || response.StatusCode != http.StatusOK {
		tb.Fatalf("routes: %v, %v", response, err)
	}
	l := &lines{}
	go func() {
		for d := json.NewDecoder(response.Body); ; {
			var table tunnel.Table
			if d.Decode(&table) != nil {
				return
			}
			l.mu.Lock()
			l.all, l.bytes = append(l.all, table), int(d.InputOffset())
			l.mu.Unlock()
		}
	}()
	return l
}

func (l *lines) read() (all []tunnel.Table, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all, l.bytes
}

// live returns whether the last line says that the only route is live.
func (l *lines) live() bool {
	all, _ := l.read()
	if len(all) == 0 {
		return false
	}
	last := all[len(all)-1]
	if last.Live != nil {
		return len(*last.Live) == 1
	}
	return last.Routes[0].Live
}

// TestFlappingClient: a client that connects again and again costs its carriers' other users little. A carrier of an older version gets
// whole Tables, at the same pace.
func TestFlappingClient(t *testing.T) {
	w := newShop(t)
	long := strings.Repeat("x", tunnel.MaxMatch-100)
	w.a.Match = &httpmatch.Match{Path: &httpmatch.Text{Exact: &long}}
	w.set(w.carriers, w.a)
	current := readLines(t, w.mustPeer(w.one), http.Header{tunnel.HeaderLive: {"true"}})
	older := readLines(t, w.mustPeer(w.two), http.Header{})
	began := time.Now()
	flaps := 0
	for ; time.Since(began) < 3*time.Second; flaps++ {
		conn, err := w.session(w.alice)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, 5*time.Second, "connected", func() bool { return w.status().Routes["a"].Connected })
		_ = conn.Close()
		eventually(t, 5*time.Second, "disconnected", func() bool { return !w.status().Routes["a"].Connected })
	}
	w.connect(w.alice, "alice")
	for name, l := range map[string]*lines{"current": current, "older": older} {
		eventually(t, 10*time.Second, "a carrier of the "+name+" version knows that the client has stayed", l.live)
		all, size := l.read()
		t.Logf("%s version: %d lines with %d bytes for %d connections of the client", name, len(all), size, flaps)
		if most := tableBurst + int(time.Since(began)/tablePause) + 1; len(all) > most {
			t.Errorf("%s version: %d lines, want %d at most", name, len(all), most)
		}
		for i, table := range all {
			if whole := table.Live == nil; whole != (i == 0 || name == "older") {
				t.Errorf("%s version, line %d: whole: %t", name, i, whole)
			}
		}
	}
	if _, size := current.read(); size > 2*tunnel.MaxMatch {
		t.Errorf("a carrier of the current version reads %d bytes", size)
	}
}
