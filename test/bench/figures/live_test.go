package figures

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// madeLive is a run that meets every goal exactly. change may spoil it.
func madeLive(rounds int, change func(*Live)) *Results {
	r := &Results{Rounds: rounds}
	l := &r.Live
	for round := range rounds {
		for i := range FlowPairs {
			p := &FlowPairs[i]
			for _, s := range []*Scenario{&p.Off, &p.On} {
				cost := time.Duration(100)
				if s.Processes {
					cost = time.Duration(100 * p.times)
				}
				l.Flows = append(l.Flows, Sample{
					Scenario: s.Name, Engine: EngineBPF, Round: round, Packets: 1000, Captured: 1000, File: 100_000,
					Sender: 1000 * (200 + cost), Process: 1000 * cost, Beside: Sent{Frames: 1000, CPU: 1000 * 200},
				})
			}
		}
		l.Followed = append(l.Followed, Followed{
			Round: round, Pods: 10, Written: 1000, Packets: 990, Left: 10, Bytes: 50e6, Wall: time.Second, CPU: time.Second,
			Anonymous: followedMemory << 20, Resident: followedMemory << 20,
		})
		for i := range LiveWays {
			l.Latencies = append(l.Latencies, Latency{Way: LiveWays[i].Name, Round: round, Times: []time.Duration{900e6, 500e6, 1e6}})
		}
	}
	if change != nil {
		change(l)
	}
	return r
}

// slower makes the packets of a way late in some rounds.
func slower(way string, rounds int) func(*Live) {
	return func(l *Live) {
		for i := range l.Latencies {
			if one := &l.Latencies[i]; one.Way == way && one.Round < rounds {
				one.Times = []time.Duration{600e6}
			}
		}
	}
}

// costlier adds to the process of a scenario.
func costlier(scenario string, times float64) func(*Live) {
	return func(l *Live) {
		for i := range l.Flows {
			if s := &l.Flows[i]; s.Scenario == scenario {
				s.Process = time.Duration(float64(s.Process) * times)
			}
		}
	}
}

func TestLiveGoals(t *testing.T) {
	each := func(change func(*Followed)) func(*Live) {
		return func(l *Live) {
			for i := range l.Followed {
				change(&l.Followed[i])
			}
		}
	}
	for name, tc := range map[string]struct {
		change     func(*Live)
		wantMissed []int // of liveGoals
	}{
		"all met":              {},
		"costly few flows":     {costlier("few-on", 1.1), []int{0}},
		"costly many flows":    {costlier("many-on", 1.1), []int{1}},
		"cheap without names":  {costlier("many-off", 0.9), []int{1}},
		"one packet is silent": {func(l *Live) { l.Followed[0].Packets-- }, []int{2}},
		"more than a core":     {each(func(f *Followed) { f.CPU++ }), []int{3}},
		"large":                {each(func(f *Followed) { f.Anonymous++; f.Resident++ }), []int{4, 5}},
		"large program":        {each(func(f *Followed) { f.Resident++ }), []int{5}},
		"large in one round":   {func(l *Live) { l.Followed[0].Anonymous *= 2 }, nil},
		"late":                 {slower(wayDefault, 2), []int{6}},
		"late in one round":    {slower(wayDefault, 1), nil},
		"late by a pipe":       {slower(wayPipe, 3), []int{7}},
		"late with a delay":    {slower(wayShort, 3), []int{8}},
		"late without a goal":  {slower("quiet", 3), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := madeLive(3, tc.change)
			var missed []int
			for n, g := range r.Live.goals() {
				if !g.met {
					missed = append(missed, n)
				}
			}
			if diff := cmp.Diff(tc.wantMissed, missed); diff != "" {
				t.Errorf("missed goals (-want +got):\n%s", diff)
			}
			page := LivePage(r)
			if strings.Contains(page, "not met") != (len(missed) > 0) || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
				t.Errorf("the page is not of these figures:\n%s", page)
			}
			for i := range LiveWays {
				if !strings.Contains(page, "| "+LiveWays[i].label+" |") {
					t.Errorf("the page leaves out %s:\n%s", LiveWays[i].label, page)
				}
			}
		})
	}
}

func TestCompareLives(t *testing.T) {
	a := madeLive(3, nil)
	for name, tc := range map[string]struct {
		b       *Results
		wantErr bool
	}{
		"agree":             {madeLive(2, slower(wayDefault, 1)), false},
		"differ":            {madeLive(2, slower(wayDefault, 2)), true},
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
