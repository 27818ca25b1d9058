package capture

import (
	"fmt"
	"strings"
	"testing"
	"time"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/memapi"
)

// scenarios are user actions on a capture of three Pods.
var scenarios = map[string]func(*schedule, *captureTruth){
	"ordinary": func(*schedule, *captureTruth) {},
	"stopped": func(s *schedule, c *captureTruth) {
		memapi.Edit(s.api, memapi.KeyFor("PacketCapture", c.key.Namespace, c.key.Name), func(pc *sondev1.PacketCapture) {
			pc.Spec.Stop = true
			pc.Generation++
		})
	},
	"deleted": func(s *schedule, c *captureTruth) { s.remove(c) },
	"right lost": func(s *schedule, _ *captureTruth) {
		s.denied["shop"] = true
		s.refuseAll()
	},
}

// singleFault runs one scenario with one fault.
func (s *schedule) singleFault(p *singleFault, happens func(*schedule, *captureTruth)) {
	s.plan, s.calm = p, true
	s.begin(3)
	c := s.request("pc")
	s.leader = s.newReplica(0)
	for end := s.clock.Now().Add(15 * time.Second); s.clock.Now().Before(end); {
		s.settle()
		s.clock.SetTime(later(later(s.nextTime(), s.clock.Now().Add(time.Millisecond)), end))
	}
	p.common = p.observed
	happens(s, c)
	s.rest()
}

// TestEachWrite crashes the manager before and after each write for a capture, and fails each write once with each fault. All
// scenarios begin with the same writes, so only one of them has faults there.
func TestEachWrite(t *testing.T) {
	t.Parallel()
	for name, happens := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := newSchedule(t, 1)
			whole.singleFault(&singleFault{}, happens)
			whole.check(t, "without a fault")
			if jobs := whole.writes["Job"]; whole.plan.observed < 8 || jobs < 3 {
				t.Fatalf("%d writes, %d of Jobs: want at least 8 and 3", whole.plan.observed, jobs)
			}
			first := 1
			if name != "ordinary" {
				first = whole.plan.common + 1
			}
			for at := first; at <= whole.plan.observed; at++ {
				for how, p := range faultsAt(at) {
					s := newSchedule(t, 1)
					s.failures = 1
					s.singleFault(p, happens)
					s.check(t, fmt.Sprintf("write %d (%s): %s", at, p.what, how))
				}
			}
			t.Logf("%d writes (%v), each from number %d on with %d faults", whole.plan.observed, whole.writes, first, len(faultsAt(1)))
		})
	}
}

// faultsAt returns all faults at the nth write.
func faultsAt(n int) map[string]*singleFault {
	all := map[string]*singleFault{"crash before": {at: n, before: true}, "crash after": {at: n, after: true}}
	for i := range memapi.Faults {
		all[memapi.Faults[i].Name] = &singleFault{at: n, answer: &memapi.Faults[i]}
	}
	return all
}

func (s *schedule) check(t *testing.T, what string) {
	t.Helper()
	if s.Broken != "" {
		t.Errorf("%s: %s\n%s", what, s.Broken, strings.Join(s.Lines, "\n"))
	}
}
