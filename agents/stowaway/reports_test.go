package stowaway

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// TestStatusIsBounded: whatever carriers report, the manager can read the Status of the largest State.
func TestStatusIsBounded(t *testing.T) {
	state := &tunnel.State{Version: tunnel.Version, Generation: "x"}
	all := map[string]tunnel.Counters{}
	uid := func(kind string, n int) string { return fmt.Sprintf("%s-%0*d", kind, 35-len(kind), n) }
	for n := range tunnel.MaxCarriers {
		state.Carriers = append(state.Carriers, tunnel.Carrier{Pod: uid("carrier", n), Name: "flood/web", Key: tunnel.PublicKey(uid("key", n))})
	}
	const podsOfEach = tunnel.MaxRoutedPods / tunnel.MaxRoutes
	for n := range tunnel.MaxRoutes {
		r := tunnel.Route{ID: uid("route", n), Name: "flood/a", ClientKey: tunnel.PublicKey(uid("client", n)), Port: uint16(10_000 + n)}
		for p := range podsOfEach {
			r.Pods = append(r.Pods, uid("carrier", (n*podsOfEach+p)%tunnel.MaxCarriers))
		}
		state.Routes = append(state.Routes, r)
		all[r.ID] = tunnel.Counters{
			Connections: math.MaxUint64, Matched: math.MaxUint64, Passed: math.MaxUint64, Failed: math.MaxUint64,
			BytesToClient: math.MaxUint64, BytesFromClient: math.MaxUint64, Overlaps: math.MaxUint64,
		}
	}
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler)})
	i, err := newIndex(state, "manager")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(i)
	var ports []uint16
	for port := range uint16(math.MaxUint16) {
		ports = append(ports, port+1, port+1)
	}
	for _, c := range s.carriers {
		s.addReport(c, &tunnel.Report{Steered: ports[:len(ports)/2], Unserved: ports, Routes: all})
		if kept := len(c.steered) + len(c.unserved); len(c.counters) != 10 || kept != 10 || cap(c.steered)+cap(c.unserved) > 32 {
			t.Fatalf("%d counters and %d ports are kept of a Pod with 10 routes", len(c.counters), kept)
		}
	}
	b, err := json.Marshal(s.status())
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d KiB", len(b)>>10); len(b) > tunnel.MaxStatus {
		t.Errorf("the Status has %d bytes, want %d at most", len(b), tunnel.MaxStatus)
	}
	if _, err := tunnel.ParseStatus(b); err != nil {
		t.Error(err)
	}
	state.Generation, state.Routes = "y", state.Routes[:1]
	if i, err = newIndex(state, "manager"); err != nil {
		t.Fatal(err)
	}
	s.apply(i)
	if got := s.status().Carriers[uid("carrier", 0)]; !slices.Equal(got.Steered, []uint16{10_000}) || got.Unserved != nil || len(got.Routes) != 1 {
		t.Errorf("after the State: %+v, want only the port and the counters of the remaining route", got)
	}
}

// TestLargestReport: a carrier may send the largest report that it can make.
func TestLargestReport(t *testing.T) {
	const routes = 50
	report := tunnel.Report{Pod: strings.Repeat("p", 128), Routes: map[string]tunnel.Counters{}}
	for n := range routes {
		report.Routes[fmt.Sprintf("%0128d", n)] = tunnel.Counters{
			Connections: math.MaxUint64, Matched: math.MaxUint64, Passed: math.MaxUint64, Failed: math.MaxUint64,
			BytesToClient: math.MaxUint64, BytesFromClient: math.MaxUint64, Overlaps: math.MaxUint64,
		}
		report.Unserved = append(report.Unserved, uint16(65_000+n))
	}
	report.Steered = []uint16{65_100}
	for range tunnel.MaxRequests {
		report.Requests = append(report.Requests, tunnel.Request{
			Time: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("", 3600)), Number: math.MaxUint64, Pod: report.Pod, Route: report.Pod, Port: 65_000,
			Method: strings.Repeat("&", maxMethod), Path: strings.Repeat("\xff", maxPath), Status: 599, Client: true,
		})
	}
	b, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d of %d bytes", len(b), maxReport(routes)); len(b)+1 > maxReport(routes) {
		t.Errorf("the report has %d bytes, and may have %d", len(b)+1, maxReport(routes))
	}
}

// TestPaceOfReports: Stowaway parses what the carriers of a namespace can report, and refuses a carrier that sends more. Other namespaces
// have their own pace.
func TestPaceOfReports(t *testing.T) {
	s := newServer(&Config{Log: slog.New(slog.DiscardHandler), ManagerKey: "m"})
	state := &tunnel.State{Version: tunnel.Version, Generation: "x"}
	for n := range 32 {
		state.Carriers = append(state.Carriers, tunnel.Carrier{Pod: fmt.Sprint("p", n), Name: "flood/web", Key: tunnel.PublicKey(fmt.Sprint("k", n))})
	}
	state.Carriers = append(state.Carriers, tunnel.Carrier{Pod: "shop", Name: "shop/web", Key: "shop"})
	state.Routes = []tunnel.Route{{ID: "a", Name: "shop/a", ClientKey: "a", Port: 1, Pods: []string{"shop"}}}
	i, err := newIndex(state, "m")
	if err != nil {
		t.Fatal(err)
	}
	s.apply(i)
	read := func(pod string, from io.Reader) (status int) {
		t.Helper()
		r, err := tunnel.NewRequest(t.Context(), http.MethodPost, tunnel.PathReport, from)
		if err != nil {
			t.Fatal(err)
		}
		answer := &recorder{}
		s.readReports(answer, r, s.carriers[pod], &connection{})
		return answer.status
	}
	s.reading["flood"].SetLimit(0) // however long this takes
	line := "{}" + strings.Repeat(" ", 60<<10) + "\n"
	for n := range 32 {
		if status := read(fmt.Sprint("p", n), strings.NewReader(strings.Repeat(line, reportBurst))); status != 0 {
			t.Fatalf("carrier %d is refused with %d", n, status)
		}
	}
	if status := read("p0", strings.NewReader(strings.Repeat(line, 20*reportBurst))); status != http.StatusTooManyRequests {
		t.Errorf("a carrier that sends more: status %d", status)
	}
	if s.affords(s.carriers["p1"], 1<<20) {
		t.Error("all reports of a namespace are parsed")
	}
	if read("shop", strings.NewReader(`{"steered":[1]}`+"\n")); len(s.carriers["shop"].steered) != 1 {
		t.Error("another namespace's report is dropped")
	}
}
