package tunnel

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// largestStatus has everything that the State allows, in its longest form.
func largestStatus() *Status {
	s := &Status{Version: Version, Generation: strings.Repeat("f", 32), Routes: map[string]RouteStatus{}, Carriers: map[string]CarrierStatus{}}
	uid := func(kind string, n int) string { return fmt.Sprintf("%s-%0*d", kind, 35-len(kind), n) }
	east := time.FixedZone("", 5*3600+45*60)
	for n := range MaxRoutes {
		s.Routes[uid("route", n)] = RouteStatus{Connected: true, Heartbeat: time.Date(2026, 11, 27, 10, 0, 0, 123456789, east)}
	}
	full := Counters{
		Connections: math.MaxUint64, Matched: math.MaxUint64, Passed: math.MaxUint64, Failed: math.MaxUint64,
		BytesToClient: math.MaxUint64, BytesFromClient: math.MaxUint64, Overlaps: math.MaxUint64,
	}
	for n := range MaxCarriers {
		c := CarrierStatus{Connected: true, Routes: map[string]Counters{}}
		for r := range MaxRoutedPods / MaxCarriers {
			c.Routes[uid("route", (n+r)%MaxRoutes)], c.Steered = full, append(c.Steered, uint16(65000+r))
		}
		c.Unserved, c.Steered = c.Steered[:1], c.Steered[1:]
		s.Carriers[uid("carrier", n)] = c
	}
	return s
}

func TestParseStatus(t *testing.T) {
	want := largestStatus()
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseStatus(b)
	if err != nil {
		t.Fatalf("the largest Status: %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{"no JSON": "{", "a long number": `{"version":` + strings.Repeat("9", 1<<20) + "}"} {
		if _, err := ParseStatus([]byte(text)); err == nil || len(err.Error()) > 2*maxReason {
			t.Errorf("%s: %.100v", name, err)
		}
	}
}

// TestHostileStatus: what a Stowaway that was taken over answers takes little of the manager's memory, which has a limit of 384 MiB.
func TestHostileStatus(t *testing.T) {
	const most = 96 << 20
	for name, tc := range map[string]struct{ before, entry, after string }{
		"routes":                  {`{"routes":{`, `"%x":{},`, `"":{}}}`},
		"routes without a status": {`{"routes":{`, `"%x":null,`, `"":{}}}`},
		"carriers with a route":   {`{"carriers":{`, `"%x":{"routes":{"":{}}},`, `"":{}}}`},
		"carriers with null":      {`{"carriers":{`, `"%x":{"routes":{"":null}},`, `"":{}}}`},
		"routes of a carrier":     {`{"carriers":{"":{"routes":{`, `"%x":{},`, `"":{}}}}}`},
		"ports":                   {`{"carriers":{"":{"steered":[`, `1,`, `1]}}}`},
		"parts that are ignored":  {`{"x":[`, `{},`, `{}]}`},
	} {
		for size, entries := range map[string]int{"as many as there may be": maxStatusColons / 3, "as many as there is room for": MaxStatus} {
			t.Run(name+", "+size, func(t *testing.T) {
				var b strings.Builder
				b.WriteString(tc.before)
				for n := 0; n < entries && b.Len() < MaxStatus-64; n++ {
					if strings.Contains(tc.entry, "%") {
						fmt.Fprintf(&b, tc.entry, n)
					} else {
						b.WriteString(tc.entry)
					}
				}
				b.WriteString(tc.after)
				status := []byte(b.String())
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := ParseStatus(status)
				runtime.ReadMemStats(&after)
				if took := after.TotalAlloc - before.TotalAlloc; took > most {
					t.Errorf("%d KiB take %d MiB, want %d at most (%v)", len(status)>>10, took>>20, most>>20, err)
				}
			})
		}
	}
}
