package intercept

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/memapi"
)

// patches counts the statuses of InterceptRequests that the manager writes from now on.
func (s *schedule) patches() *int {
	n := 0
	s.leader.requests.Written = func(verb string, key memapi.Key, err error) {
		s.afterWrite(verb, key, err)
		if key.Kind == sondev1.InterceptKind {
			n++
		}
	}
	return &n
}

// pass makes one pass after a second.
func (s *schedule) pass() {
	s.clock.Step(time.Second)
	s.play()
	s.catchUp(s.clock.Now().Add(time.Second))
	s.reconcile(s.leader)
}

// theRequest returns the only InterceptRequest.
func (s *schedule) theRequest() *sondev1.InterceptRequest {
	return memapi.Of[*sondev1.InterceptRequest](s.api.Objects, sondev1.InterceptKind)[0]
}

// TestPodsThatComeAndGo: a status that differs in its Pods alone is written seldom, but at last, and a change of the phase at once.
func TestPodsThatComeAndGo(t *testing.T) {
	s := settled(t)
	s.podOn("made-up") // not all Pods are intercepted, all the time
	s.settle()
	s.settle()
	n := s.patches()
	var added *corev1.Pod
	churn := func() {
		before := memapi.Of[*corev1.Pod](s.api.Objects, "Pod")
		if added != nil {
			s.api.Remove(s.api.KeyOf(added))
		}
		s.podOn("made-up")
		for _, p := range memapi.Of[*corev1.Pod](s.api.Objects, "Pod") {
			known := false
			for _, b := range before {
				known = known || b.UID == p.UID
			}
			if !known {
				added = p
			}
		}
		s.pass()
	}
	churn()
	if got := s.theRequest().Status.Pods; *n != 1 || len(got) != 4 {
		t.Errorf("%d statuses are written after the first change, want 1 with 4 Pods: %+v", *n, got)
	}
	for range 59 {
		churn()
	}
	if *n < 5 || *n > 7 {
		t.Errorf("%d statuses are written in a minute of changes, want one in 10 s", *n)
	}
	s.settle()
	names := ""
	for _, p := range s.theRequest().Status.Pods {
		names += p.Name + " "
	}
	if got := s.theRequest().Status.Pods; len(got) != 4 || got[3].Name != added.Name {
		t.Errorf("the status ends with the Pods %s, want %s last", names, added.Name)
	}
	churn()
	s.end.lost = true
	churn()
	if got := s.theRequest().Status.Phase; got != sondev1.InterceptLost {
		t.Errorf("phase %s a second after the client was lost, want %s", got, sondev1.InterceptLost)
	}
}

// TestStatusesInTurns: a pass writes few statuses, some of each namespace, and the others soon.
func TestStatusesInTurns(t *testing.T) {
	s := settled(t)
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hub", Labels: map[string]string{sondev1.LabelHub: "true"}}})
	for range 120 {
		s.requestIn("shop", "8h")
	}
	s.requestIn("hub", "8h")
	for _, end := range []bool{false, true} {
		if end {
			s.clock.Step(8 * time.Hour)
		}
		begun := s.clock.Now()
		for pass := 1; ; pass++ {
			n := s.patches()
			s.catchUp(s.clock.Now().Add(time.Second))
			s.reconcile(s.leader)
			left, hub := 0, sondev1.InterceptPhase("")
			for _, q := range memapi.Of[*sondev1.InterceptRequest](s.api.Objects, sondev1.InterceptKind) {
				if q.Status.Phase == "" || end && !q.Ended() {
					left++
				}
				if q.Namespace == "hub" {
					hub = q.Status.Phase
				}
			}
			if *n > maxChanges || hub == "" || end && hub != sondev1.InterceptEnded {
				t.Errorf("pass %d writes %d statuses, want %d at most; the one of another namespace has the phase %q", pass, *n, maxChanges, hub)
			}
			if left == 0 {
				break
			}
			if pass == 5 || s.leader.due.After(s.clock.Now().Add(nextBatch)) {
				t.Fatalf("%d of 122 statuses are not written after pass %d, and the next one comes after %v", left, pass, s.leader.due.Sub(s.clock.Now()))
			}
			s.clock.SetTime(s.leader.due)
		}
		if took := s.clock.Since(begun); took > time.Second {
			t.Errorf("the statuses are written within %v, want a second", took)
		}
		s.settle()
	}
}

// counted is a Stowaway whose carriers have counted this many requests for each route.
type counted struct {
	*simulated
	matched uint64
}

func (c *counted) Status(ctx context.Context, o *stowawayObjects) (*tunnel.Status, error) {
	status, err := c.simulated.Status(ctx, o)
	if err != nil {
		return nil, err
	}
	for pod, carrier := range status.Carriers {
		carrier.Routes = map[string]tunnel.Counters{}
		for route := range status.Routes {
			carrier.Routes[route] = tunnel.Counters{Matched: c.matched}
		}
		status.Carriers[pod] = carrier
	}
	return status, nil
}

// TestCountersThatAreNotWrittenYet: what a carrier has counted is not lost if its Pod goes before the status is written.
func TestCountersThatAreNotWrittenYet(t *testing.T) {
	s := settled(t)
	end := &counted{s.end, 1}
	s.leader.r.Stowaway = end
	s.settle()
	s.settle()
	end.matched = 2
	s.pass() // written at once
	end.matched = 7
	s.pass()
	written := s.theRequest().Status.Pods[0].Matched
	s.remove("Pod", "shop")
	for range 12 {
		s.pass()
	}
	status := s.theRequest().Status
	if written != 2 || len(status.Pods) != 1 || status.Pods[0].Matched != 7 || status.RemovedPods == nil || status.RemovedPods.Matched != 7 {
		t.Errorf("first %d requests are written, want 2; then %+v and %+v of Pods that are gone, want 7 each", written, status.Pods, status.RemovedPods)
	}
}
