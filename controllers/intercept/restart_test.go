package intercept

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/memapi"
)

// carriersKept returns how many carriers are not being deleted.
func (s *schedule) carriersKept() (n int) {
	for _, j := range memapi.Of[*batchv1.Job](s.api.Objects, "Job") {
		if j.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// TestReviewWithoutAnAnswerAfterARestart: a manager that starts while rights cannot be reviewed keeps the intercepts of the one before for
// as long as one that runs. It adds no Pod to them.
func TestReviewWithoutAnAnswerAfterARestart(t *testing.T) {
	s := settled(t)
	for _, user := range []string{"user0", "user1", "user2"} {
		s.silent[user] = true
	}
	s.podOn("n1")
	s.requestFor("8h")
	s.leader = s.newReplica(0)
	began := s.clock.Now()
	s.settle()
	requests := memapi.Of[*sondev1.InterceptRequest](s.api.Objects, "InterceptRequest")
	if q := requests[0]; s.carriersKept() != 2 || len(s.end.state.Carriers) != 2 || q.Status.Phase != sondev1.InterceptActive || len(q.Status.Pods) != 2 {
		t.Errorf("%d carriers of 2, and Stowaway has %d; %s with Pods %+v", s.carriersKept(), len(s.end.state.Carriers), q.Status.Phase, q.Status.Pods)
	}
	if q := requests[1]; len(q.Status.Pods) > 0 {
		t.Errorf("a request that no manager has admitted has Pods %+v", q.Status.Pods)
	}
	s.clock.SetTime(began.Add(maxReadingAge + time.Second))
	s.settle()
	q := memapi.Of[*sondev1.InterceptRequest](s.api.Objects, "InterceptRequest")[0]
	if n := s.carriersKept(); n != 0 || q.Status.Phase == sondev1.InterceptActive {
		t.Errorf("%d carriers are left without a review, and the phase is %s", n, q.Status.Phase)
	}
}

// TestRestartsWhileRightsCannotBeReviewed: managers that start one after the other do not prolong the time in which an intercept goes on
// without a review, and none brings one back whose carriers were removed.
func TestRestartsWhileRightsCannotBeReviewed(t *testing.T) {
	s := settled(t)
	for _, user := range []string{"user0", "user1", "user2"} {
		s.silent[user] = true
	}
	s.settle()
	began := s.clock.Now()
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{time.Minute, 2}, {maxReadingAge + time.Second, 0}, {time.Hour, 0}} {
		s.clock.SetTime(began.Add(step.after))
		s.leader = s.newReplica(0)
		s.settle()
		if n := s.carriersKept(); n != step.want {
			t.Errorf("after %s without a review, a manager that has just started keeps %d carriers, want %d", step.after, n, step.want)
		}
	}
}

// TestStatusOfARequestThatIsNotRead: nothing is known of its target, so the status does not say that the target or its Pods are gone.
func TestStatusOfARequestThatIsNotRead(t *testing.T) {
	q := intercepting("a", "web-1")
	after(q, counting(map[string]uint64{"web-1": 3}))
	q.readError, q.reading = "no answer", reading{}
	after(q, counting(nil))
	c := apimeta.FindStatusCondition(q.Status.Conditions, sondev1.ConditionIntercepted)
	if c == nil || c.Status != "False" || c.Reason != sondev1.ReasonNotChecked {
		t.Errorf("condition %+v, want reason %s", c, sondev1.ReasonNotChecked)
	}
	if diff := cmp.Diff(map[string]int64{"web-1": 3}, counts(q)); diff != "" || q.Status.Pods[0].Active || q.Status.Pods[0].Message == "" {
		t.Errorf("Pods %+v, counts (-want +got):\n%s", q.Status.Pods, diff)
	}
}
