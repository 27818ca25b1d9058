package filterpool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func push(t *testing.T, q *queue, users ...string) {
	t.Helper()
	for i, user := range users {
		lost, err := q.push(&job{user: user, since: start.Add(time.Duration(q.waiting+i) * time.Microsecond)})
		if err != nil || lost != nil {
			t.Fatalf("lost %+v, %v", lost, err)
		}
	}
}

// order empties the queue. Each job takes a second of the lane, and no time passes.
func order(q *queue, now time.Time) string {
	var users []string
	for j := q.next(now); j != nil; j = q.next(now) {
		users = append(users, j.user)
		q.charge(j.user, time.Second, now)
	}
	return strings.Join(users, " ")
}

func TestQueueIsFair(t *testing.T) {
	for name, tc := range map[string]struct {
		used map[string]time.Duration
		push []string
		want string
	}{
		"first come, first served":        {push: []string{"a", "b", "c"}, want: "a b c"},
		"turns":                           {push: []string{"a", "a", "a", "b", "b", "c"}, want: "a b c a b a"},
		"the one who has used less":       {used: map[string]time.Duration{"a": time.Hour, "b": time.Second}, push: []string{"a", "b", "c", "a"}, want: "c b a a"},
		"a flooder goes last, and goes":   {used: map[string]time.Duration{"a": time.Minute}, push: []string{"a", "a", "b", "b", "b"}, want: "b b b a a"},
		"a user who has used little less": {used: map[string]time.Duration{"a": 1500 * time.Millisecond}, push: []string{"a", "b", "b", "b"}, want: "b b a b"},
	} {
		t.Run(name, func(t *testing.T) {
			var q queue
			for user, used := range tc.used {
				push(t, &q, user)
				q.next(start)
				q.charge(user, used, start)
			}
			push(t, &q, tc.push...)
			if got := order(&q, start); got != tc.want {
				t.Errorf("order %q, want %q", got, tc.want)
			}
		})
	}
}

// TestQueueForgets: what a user has used counts half as much after a minute, and nothing is kept of users for long.
func TestQueueForgets(t *testing.T) {
	var q queue
	push(t, &q, "a", "b")
	order(&q, start)
	q.charge("a", 3*time.Second, start) // 4 s together
	q.charge("b", 2*time.Second, start.Add(halfLife))
	later := start.Add(halfLife)
	if a, b := q.accounts["a"].usedAt(later), q.accounts["b"].usedAt(later); a != 2*time.Second || b != 2500*time.Millisecond {
		t.Errorf("used %v and %v, want 2s and 2.5s", a, b)
	}
	if q.next(start.Add(15*halfLife)) != nil || len(q.accounts) != 0 {
		t.Errorf("%d accounts are kept", len(q.accounts))
	}
}

func TestQueueIsBounded(t *testing.T) {
	var q queue
	for range maxPerUser {
		push(t, &q, "a")
	}
	var busy *BusyError
	if _, err := q.push(&job{user: "a"}); !errors.As(err, &busy) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("error %v, want a BusyError that says to try again", err)
	}
	gone := &job{user: "a"}
	if q.remove(gone) || q.remove(&job{user: "nobody"}) {
		t.Error("removed a job that does not wait")
	}
	first := q.accounts["a"].waiting[0]
	if !q.remove(first) || q.waiting != maxPerUser-1 || len(q.accounts["a"].waiting) != maxPerUser-1 {
		t.Error("a job that waits was not removed")
	}
}

// TestFullQueueIsFair: each case fills the queue from accounts of so many jobs each, and pushes one more.
func TestFullQueueIsFair(t *testing.T) {
	for name, tc := range map[string]struct {
		each, used int // jobs of each account; how many of the accounts have used the lane
		waiting    int // jobs of the pushing user
		wantFull   bool
	}{
		"a third user beside 32 namespaces":               {each: 16},
		"the same user's 14th":                            {each: 16, waiting: 13},
		"a user with as many as the namespaces":           {each: 15, waiting: 15, wantFull: true},
		"a user who would have as many as they":           {each: 15, waiting: 14, wantFull: true},
		"as many users as places, none has used the lane": {each: 1, wantFull: true},
		"as many users as places, one has used the lane":  {each: 1, used: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var q queue
			for i := range tc.used {
				push(t, &q, fmt.Sprint("flood-", i))
				q.next(start)
				q.charge(fmt.Sprint("flood-", i), time.Second, start)
			}
			for range tc.waiting {
				push(t, &q, "alice")
			}
			for i := 0; q.waiting < maxWaiting; i++ {
				push(t, &q, fmt.Sprint("flood-", i/tc.each))
			}
			lost, err := q.push(&job{user: "alice", since: start})
			if _, busy := errors.AsType[*BusyError](err); busy != tc.wantFull {
				t.Fatalf("error %v", err)
			}
			if q.waiting != maxWaiting {
				t.Errorf("%d jobs wait, want %d", q.waiting, maxWaiting)
			}
			if tc.wantFull {
				return
			}
			if lost == nil || !strings.HasPrefix(lost.user, "flood-") || tc.used > 0 && lost.user != "flood-0" {
				t.Fatalf("lost %+v, want a job of the flood's", lost)
			}
			if again, err := q.push(&job{user: lost.user, since: start}); err == nil {
				t.Errorf("the flood has its place back, and %s has lost one", again.user)
			}
		})
	}
}

func TestUserOf(t *testing.T) {
	for requester, want := range map[string]string{
		"alice":                        "alice",
		"system:serviceaccount:shop:a": "system:serviceaccounts:shop",
		"system:serviceaccount:shop:b": "system:serviceaccounts:shop",
		"system:serviceaccount:bank:a": "system:serviceaccounts:bank",
		"system:admin":                 "system:admin",
	} {
		if got := userOf(requester); got != want {
			t.Errorf("userOf(%q) = %q, want %q", requester, got, want)
		}
	}
}
