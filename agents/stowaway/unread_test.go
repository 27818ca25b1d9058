package stowaway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestRelief: short memory ends the slowest streams of the namespace whose streams may hold the most, and no new one is opened there.
func TestRelief(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	ended := map[string]bool{}
	add := func(session *session, name string, moved int, waits bool) {
		st := &stream{session: session, namespace: namespaceOf(session.name), cancel: func() { ended[name] = true }}
		from := io.MultiReader(bytes.NewReader(make([]byte, moved)), strings.NewReader("end"))
		if _, err := st.toCarrier.Read(from, make([]byte, moved)); err != nil {
			t.Fatal(err)
		}
		if !waits {
			_, _ = st.toCarrier.Read(strings.NewReader(""), make([]byte, 1))
		}
		session.streams[st], s.streams[st] = struct{}{}, struct{}{}
	}
	shop := &session{id: "shop", name: "shop/a", streams: map[*stream]struct{}{}}
	flood := &session{id: "flood", name: "flood/b", streams: map[*stream]struct{}{}}
	s.sessions["shop"], s.sessions["flood"] = shop, flood
	add(shop, "shop", 1, true)
	for i := 1; i <= 4; i++ {
		add(flood, fmt.Sprint("flood ", i), i, true)
	}
	for i := range 8 {
		add(flood, fmt.Sprint("flood, idle ", i), 1, false)
	}
	later := time.Now().Add(time.Second)
	if n := s.relieveAt(later, 0); n != 0 || len(s.crowding) > 0 {
		t.Errorf("%d streams are ended without need", n)
	}
	for st := range flood.streams { // what moved since the last check counts
		_, _ = st.toCarrier.Read(strings.NewReader("x"), make([]byte, 1))
	}
	maps.DeleteFunc(s.streams, func(st *stream, _ struct{}) bool { return st.session == flood })
	for i := 1; i <= 4; i++ {
		add(flood, fmt.Sprint("flood ", i), i, true)
	}
	if n := s.relieveAt(later, 1); n != 1 || !ended["flood 1"] || len(ended) != 1 {
		t.Errorf("%d streams are ended: %v, want the slowest one of the flood", n, ended)
	}
	if len(s.crowding) != 1 || !s.crowding["flood"] {
		t.Errorf("crowding: %v", s.crowding)
	}
}

// TestShortMemoryWithoutStreamsThatWait: a namespace that takes little opens streams, whatever takes the memory.
func TestShortMemoryWithoutStreamsThatWait(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	state := &tunnel.State{Version: tunnel.Version, Generation: "x"}
	for _, namespace := range []string{"one", "two", "shop"} {
		state.Carriers = append(state.Carriers, tunnel.Carrier{Pod: namespace, Name: namespace + "/web", Key: tunnel.PublicKey("carrier of " + namespace)})
		state.Routes = append(state.Routes, tunnel.Route{
			ID: namespace, Name: namespace + "/a", ClientKey: tunnel.PublicKey("client of " + namespace), Port: 80, Pods: []string{namespace},
		})
	}
	connectAll(t, s, state)
	var ended []string
	open := func(namespace string) error {
		if _, refused := s.admit(namespace, s.carriers[namespace], func() { ended = append(ended, namespace) }); refused != nil {
			return refused
		}
		return nil
	}
	for range 100 {
		if err := errors.Join(open("one"), open("two")); err != nil {
			t.Fatal(err)
		}
	}
	s.relieveAt(time.Now(), 1<<20)
	if err := open("shop"); err != nil {
		t.Errorf("a namespace without streams: %v", err)
	}
	for _, namespace := range []string{"one", "two"} {
		if refusal(open(namespace)) != http.StatusTooManyRequests {
			t.Errorf("namespace %s, which has half of all streams, opens another", namespace)
		}
	}
	if n := s.relieveAt(time.Now(), maxExcess); n != 0 {
		t.Errorf("%d streams that do not wait are ended", n)
	}
	if err := open("one"); refusal(err) != http.StatusTooManyRequests {
		t.Errorf("while memory is short: %v", err)
	}
	if err := open("shop"); err != nil {
		t.Errorf("another stream of a namespace with one: %v", err)
	}
	s.crowding = nil
	if err := open("two"); err != nil {
		t.Fatal(err)
	}
	if n := s.relieveAt(time.Now(), maxExcess+3*streamHolds); n != 3 || len(ended) != 3 || slices.ContainsFunc(ended, func(ns string) bool { return ns != "two" }) {
		t.Errorf("%d streams are ended: %v, want three of the largest namespace", n, ended)
	}
	if n := s.relieveAt(time.Now(), maxExcess+3*streamHolds); n != 0 {
		t.Errorf("%d further streams are ended before the memory of the first ones is free", n)
	}
	s.relieveAt(time.Now(), 0)
	if err := open("one"); err != nil {
		t.Errorf("after the memory was short: %v", err)
	}
}

// TestStreamsCountForTheTarget: the users of a hub do not share the streams of one namespace.
func TestStreamsCountForTheTarget(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	state := &tunnel.State{Version: tunnel.Version, Generation: "x"}
	for _, namespace := range []string{"shop", "bank"} {
		state.Carriers = append(state.Carriers, tunnel.Carrier{Pod: namespace, Name: namespace + "/web", Key: tunnel.PublicKey("carrier of " + namespace)})
		for _, id := range []string{"1", "2", "3"} {
			id = namespace + id
			state.Routes = append(state.Routes, tunnel.Route{ID: id, Name: "hub/" + id, ClientKey: tunnel.PublicKey("client of " + id), Port: 80, Pods: []string{namespace}})
		}
	}
	connectAll(t, s, state)
	var streams []*stream
	for n := range maxNamespaceStreams {
		st, refused := s.admit([]string{"shop1", "shop2", "shop3"}[n%3], s.carriers["shop"], func() {})
		if refused != nil {
			t.Fatalf("stream %d: %v", n, refused)
		}
		streams = append(streams, st)
	}
	if _, refused := s.admit("shop1", s.carriers["shop"], func() {}); refused == nil {
		t.Errorf("namespace shop has more than %d streams", maxNamespaceStreams)
	}
	if _, refused := s.admit("bank1", s.carriers["bank"], func() {}); refused != nil {
		t.Errorf("another target of the hub: %v", refused)
	}
	for _, st := range streams {
		s.release(st)
	}
	if got := s.opened; len(got) != 1 || got["bank"] != 1 {
		t.Errorf("open at the end: %v", got)
	}
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
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tunnel.PathReport, bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		s.readReports(&recorder{header: http.Header{}}, r, s.carriers["p"], &connection{})
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

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// connectAll applies a State, and gives each route a session.
func connectAll(t *testing.T, s *server, state *tunnel.State) {
	t.Helper()
	i, err := newIndex(state, "manager")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(i)
	for id := range i.routes {
		s.sessions[id] = &session{id: id, name: i.routes[id].Name, streams: map[*stream]struct{}{}}
	}
}
