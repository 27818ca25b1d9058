package figures

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// madeIntercepts is a run that meets every goal exactly. change may spoil it.
func madeIntercepts(rounds int, change func(*Intercept)) *Results {
	const size = 1e9
	seconds := map[string]float64{WayDirect: 8, WaySonde: 32, WayAPIServer: 64, WayWireGuard: 256}
	r := &Results{Rounds: rounds}
	i := &r.Intercept
	for round := range rounds {
		for _, w := range Ways {
			cpu := map[string]time.Duration{}
			switch w.Name {
			case WaySonde, WayAPIServer:
				cpu = map[string]time.Duration{ProcessClient: time.Second, ProcessStowaway: 2 * time.Second, ProcessCarrier: time.Second}
			case WayWireGuard:
				cpu = map[string]time.Duration{ProcessSource: 16 * time.Second, ProcessSink: 16 * time.Second}
			}
			if w.Name == WayAPIServer {
				cpu[ProcessAPIServer] = time.Hour
			}
			i.Streams = append(i.Streams, Streamed{Way: w.Name, Round: round, Bytes: size, Wall: time.Duration(seconds[w.Name] * 1e9), CPU: cpu})
		}
		i.Forwarded = append(i.Forwarded, Forwarded{Round: round, Requests: 10, Direct: 100, Splice: 200, Carrier: 270})
		i.Held = append(i.Held, Held{Round: round, Clients: 50, Streams: 17, Memory: 256 << 20})
	}
	if change != nil {
		change(i)
	}
	return r
}

// slowdown multiplies the times of a way.
func slowdown(way string, times float64) func(*Intercept) {
	return func(i *Intercept) {
		for n := range i.Streams {
			if s := &i.Streams[n]; s.Way == way {
				s.Wall = time.Duration(float64(s.Wall) * times)
			}
		}
	}
}

func TestInterceptGoals(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(*Intercept)
		wantMissed []int // of interceptGoals
	}{
		"all met":         {},
		"slow stream":     {slowdown(WaySonde, 1.01), []int{0, 1}},
		"slow API server": {slowdown(WayAPIServer, 1.01), []int{3}},
		"expensive": {func(i *Intercept) {
			i.streamAt(WaySonde, 0).CPU[ProcessClient] *= 2
			i.streamAt(WaySonde, 1).CPU[ProcessCarrier] *= 2
		}, []int{2}},
		"expensive API server":  {func(i *Intercept) { i.streamAt(WayAPIServer, 0).CPU[ProcessAPIServer] *= 2 }, nil},
		"slow in one of rounds": {func(i *Intercept) { i.Forwarded[0].Carrier *= 2 }, nil},
		"slow requests":         {func(i *Intercept) { i.Forwarded[0].Carrier += 2; i.Forwarded[1].Carrier += 2 }, []int{4}},
		"large":                 {func(i *Intercept) { i.Held[0].Memory++; i.Held[1].Memory++ }, []int{5}},
	} {
		t.Run(name, func(t *testing.T) {
			r := madeIntercepts(3, tc.change)
			var missed []int
			for n, g := range r.Intercept.goals() {
				if !g.met {
					missed = append(missed, n)
				}
			}
			if diff := cmp.Diff(tc.wantMissed, missed); diff != "" {
				t.Errorf("missed goals (-want +got):\n%s", diff)
			}
			page := InterceptPage(r)
			if strings.Contains(page, "not met") != (len(missed) > 0) || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
				t.Errorf("the page is not of these figures:\n%s", page)
			}
			for i := range Ways {
				if !strings.Contains(page, "| "+Ways[i].Label+" |") {
					t.Errorf("the page leaves out %s:\n%s", Ways[i].Label, page)
				}
			}
		})
	}
}

func (i *Intercept) streamAt(way string, round int) *Streamed {
	for n := range i.Streams {
		if s := &i.Streams[n]; s.Way == way && s.Round == round {
			return s
		}
	}
	return nil
}

func TestCompareIntercepts(t *testing.T) {
	a := madeIntercepts(3, nil)
	for name, tc := range map[string]struct {
		b       *Results
		wantErr bool
	}{
		"agree":             {madeIntercepts(2, slowdown(WaySonde, 1.1)), false},
		"differ":            {madeIntercepts(2, slowdown(WaySonde, 1.2)), true},
		"nothing in common": {made("512-disk", 1, 1000, 400), true},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := Compare(&out, a, tc.b); (err != nil) != tc.wantErr {
				t.Errorf("error %v, want one: %v\n%s", err, tc.wantErr, out.String())
			}
		})
	}
}
