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
		if err := q.push(&job{user: user, since: start.Add(time.Duration(q.waiting+i) * time.Microsecond)}); err != nil {
			t.Fatal(err)
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
	if err := q.push(&job{user: "a"}); !errors.As(err, &busy) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("error %v, want a BusyError that says to try again", err)
	}
	for i := range maxWaiting - maxPerUser {
		push(t, &q, fmt.Sprint(i))
	}
	if err := q.push(&job{user: "b"}); !errors.As(err, &busy) || !strings.Contains(err.Error(), "all users") {
		t.Errorf("error %v, want a BusyError", err)
	}
	gone := &job{user: "a"}
	if q.remove(gone) || q.remove(&job{user: "nobody"}) {
		t.Error("removed a job that does not wait")
	}
	first := q.accounts["a"].waiting[0]
	if !q.remove(first) || q.waiting != maxWaiting-1 || len(q.accounts["a"].waiting) != maxPerUser-1 {
		t.Error("a job that waits was not removed")
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
