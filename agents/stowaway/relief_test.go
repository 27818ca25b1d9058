package stowaway

import (
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// relief is a server whose streams and connections note when they end.
type relief struct {
	*server
	ended map[string]int
}

func newRelief() *relief {
	return &relief{newServer(&Config{Log: slog.New(slog.DiscardHandler)}), map[string]int{}}
}

func (r *relief) note(what string) func() { return func() { r.ended[what]++ } }

// add adds streams of a namespace.
func (r *relief) add(t *testing.T, namespace string, n int, waits bool) {
	t.Helper()
	of := r.sessions[namespace]
	if of == nil {
		of = &session{id: namespace, name: namespace + "/a", streams: map[*stream]struct{}{}, end: r.note("client of " + namespace)}
		r.sessions[namespace] = of
	}
	for range n {
		what := namespace
		if waits {
			what += ", waiting"
		}
		st := &stream{session: of, pod: namespace + "0", namespace: namespace, cancel: r.note(what)}
		if waits {
			if _, err := st.toClient.Read(strings.NewReader("x"), make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		r.streams[st] = struct{}{}
		r.opened[namespace]++
	}
}

// connect adds carriers of a namespace with a connection each.
func (r *relief) connect(namespace string, n int) (all []*connection) {
	for i := range n {
		c := newCarrier(tunnel.Carrier{Pod: fmt.Sprint(namespace, i), Name: namespace + "/web"})
		own := &connection{end: r.note("carrier of " + namespace)}
		c.connections.add(own, maxOfCarrier)
		r.carriers[c.pod] = c
		all = append(all, own)
	}
	return all
}

// TestReliefOfTheLargest: if memory is short, the namespace that takes the most loses streams, also if only another one's wait.
func TestReliefOfTheLargest(t *testing.T) {
	later := time.Now().Add(time.Second)
	for name, tc := range map[string]struct {
		given  func(*testing.T, *relief)
		excess int
		want   map[string]int
	}{
		"quiet streams, beside one that waits": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				r.add(t, "flood", 4000, false)
				r.add(t, "shop", 1, true)
			},
			excess: 3 * streamHolds, want: map[string]int{"flood": 3},
		},
		"quiet streams, while none waits": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				r.add(t, "flood", 4000, false)
			},
			excess: maxExcess + 3*streamHolds, want: map[string]int{"flood": 3},
		},
		"streams that wait, beside more quiet ones": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				r.add(t, "flood", 100, true) // up to 25 MiB
				r.add(t, "shop", 700, false) // 22 MiB
			},
			excess: maxExcess, want: map[string]int{"flood, waiting": 100},
		},
		"streams that wait, and its quiet ones stay": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				r.add(t, "flood", 4000, false)
				r.add(t, "flood", 2, true)
			},
			excess: maxExcess + 3*streamHolds, want: map[string]int{"flood, waiting": 2},
		},
		"connections are for a larger excess": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				r.connect("flood", 100)
				r.add(t, "shop", 1, true)
			},
			excess: maxExcess,
		},
		"connections, those that hold the most": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				all := r.connect("flood", 100)
				all[50].line.Store(1 << 20)
				all[50].end = r.note("carrier with a report")
				all[70].requests.Store(standingRequests + 100)
				all[70].end = r.note("carrier with requests")
				r.connect("shop", 20)
				r.add(t, "shop", 1, true)
			},
			excess: maxExcess + 5<<20,
			want:   map[string]int{"carrier with a report": 1, "carrier with requests": 1, "carrier of flood": 12},
		},
		"connections of clients": {
			given: func(t *testing.T, r *relief) {
				t.Helper()
				r.add(t, "flood", 0, false)
				r.connect("shop", 1)
				r.sessions["flood, too"] = &session{name: "flood/b", end: r.note("client of flood")}
			},
			excess: maxExcess + 1<<20, want: map[string]int{"client of flood": 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelief()
			tc.given(t, r)
			n := r.relieveAt(later, tc.excess)
			sum := 0
			for _, of := range tc.want {
				sum += of
			}
			if n != sum || !maps.Equal(r.ended, tc.want) {
				t.Errorf("%d ended: %v, want %v", n, r.ended, tc.want)
			}
		})
	}
}

// TestReliefOfStreamsThatWaitInTurn: a namespace does not keep its quiet streams by a few that wait and hold little.
func TestReliefOfStreamsThatWaitInTurn(t *testing.T) {
	r := newRelief()
	r.add(t, "flood", 4000, false)
	for turn, quiet := range []int{0, 3} {
		r.add(t, "flood", 1, true)
		clear(r.ended)
		r.relieveAt(time.Now().Add(time.Second), maxExcess+3*streamHolds)
		if r.ended["flood, waiting"] != 1 || r.ended["flood"] != quiet {
			t.Errorf("turn %d: %v ended, want one that waits, and %d others", turn, r.ended, quiet)
		}
		for st := range r.streams {
			if !st.ended.IsZero() {
				delete(r.streams, st)
			}
		}
	}
}

// TestReliefOfALostClient: streams of a client that has gone end, too. They hold what it had sent and their carriers do not take.
func TestReliefOfALostClient(t *testing.T) {
	r := newRelief()
	r.add(t, "flood", 100, true)
	r.add(t, "shop", 1, true)
	r.removeSession(r.sessions["flood"])
	n := r.relieveAt(time.Now().Add(time.Second), maxExcess)
	if want := (map[string]int{"flood, waiting": 100}); n != 100 || !maps.Equal(r.ended, want) {
		t.Errorf("%d ended: %v, want %v", n, r.ended, want)
	}
}

// TestReliefOfStreamsThatDoNotEnd: streams that were ended, and whose carrier takes no bytes, protect neither the others of their namespace
// nor themselves.
func TestReliefOfStreamsThatDoNotEnd(t *testing.T) {
	const streams, excess = 100, 100 * int(tunnel.Near)
	r := newRelief()
	r.connect("flood", 1)
	r.add(t, "shop", 10, true)
	first := time.Now().Add(time.Second)
	for _, tc := range []struct {
		name  string
		after time.Duration
		want  map[string]int
	}{
		{"the first ones", 0, map[string]int{"flood, waiting": streams}},
		{"they may be ending", endTimeout, map[string]int{}},
		{"they do not end", endTimeout + 1, map[string]int{"flood, waiting": streams, "carrier of flood": 1}},
	} {
		r.add(t, "flood", streams, true)
		clear(r.ended)
		if r.relieveAt(first.Add(tc.after), excess); !maps.Equal(r.ended, tc.want) {
			t.Errorf("%s: %v ended, want %v", tc.name, r.ended, tc.want)
		}
	}
}
