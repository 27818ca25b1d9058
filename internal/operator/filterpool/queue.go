package filterpool

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

const (
	// maxPerUser bounds the filters of a user that wait in a lane, maxWaiting those of all users.
	maxPerUser, maxWaiting = 16, 512
	// halfLife of the record of what a user has used.
	halfLife = time.Minute
	// forgotten is a use that is too small to remember.
	forgotten = time.Millisecond
)

// BusyError says that too many filters wait. The same request may succeed a little later.
type BusyError struct{ message string }

// Error implements error.
func (e *BusyError) Error() string { return e.message }

// account is what a user has used of a lane, and waits for.
type account struct {
	used    time.Duration // at the time at; it halves in each halfLife
	at      time.Time
	waiting []*job // oldest first
}

func (a *account) usedAt(now time.Time) time.Duration {
	return time.Duration(float64(a.used) * math.Exp2(-max(0, now.Sub(a.at).Seconds())/halfLife.Seconds()))
}

// queue holds the jobs that wait in a lane, by user. It is not safe for concurrent use.
type queue struct {
	accounts map[string]*account
	waiting  int
}

// userOf returns the account of a requester. An admin of a namespace makes ServiceAccounts at will, so all of a namespace
// share one.
func userOf(requester string) string {
	if of, isAccount := strings.CutPrefix(requester, "system:serviceaccount:"); isAccount {
		namespace, _, _ := strings.Cut(of, ":")
		return "system:serviceaccounts:" + namespace
	}
	return requester
}

// push adds a job. When the queue is full, the user with the most jobs loses their newest one to a user with fewer: push
// returns the lost job. So a flood from many accounts does not keep out a user with one filter.
func (q *queue) push(j *job) (lost *job, err error) {
	a := q.accounts[j.user]
	if a == nil {
		a = &account{}
	}
	if len(a.waiting) >= maxPerUser {
		return nil, &BusyError{fmt.Sprintf("%d filters of %s wait to be compiled: try again when some are done", maxPerUser, j.user)}
	}
	if q.waiting >= maxWaiting {
		most := q.most(j.since)
		more := len(most.waiting) - len(a.waiting)
		if more < 1 || more == 1 && most.usedAt(j.since) <= a.usedAt(j.since) {
			return nil, errFull()
		}
		last := len(most.waiting) - 1
		lost = most.waiting[last]
		most.waiting = most.waiting[:last]
		q.waiting--
	}
	if q.accounts == nil {
		q.accounts = map[string]*account{}
	}
	q.accounts[j.user] = a
	a.waiting = append(a.waiting, j)
	q.waiting++
	return lost, nil
}

// errFull is the answer to a job that finds no room, or loses it.
func errFull() error {
	return &BusyError{fmt.Sprintf("%d filters of all users wait to be compiled: try again in some seconds", maxWaiting)}
}

// most returns the account with the most jobs. Of several it is the one that has used the most.
func (q *queue) most(now time.Time) *account {
	var most *account
	for _, a := range q.accounts {
		if most == nil || cmp.Or(cmp.Compare(len(a.waiting), len(most.waiting)), cmp.Compare(a.usedAt(now), most.usedAt(now))) > 0 {
			most = a
		}
	}
	return most
}

// next removes and returns the oldest job of the user who has used the least, or nil. Of users with the same use the one
// who has waited longer goes first. It forgets users who neither wait nor have used anything lately.
func (q *queue) next(now time.Time) *job {
	var first *account
	for user, a := range q.accounts {
		used := a.usedAt(now)
		switch {
		case len(a.waiting) == 0:
			if used < forgotten {
				delete(q.accounts, user)
			}
		case first == nil, used < first.usedAt(now), used == first.usedAt(now) && a.waiting[0].since.Before(first.waiting[0].since):
			first = a
		}
	}
	if first == nil {
		return nil
	}
	j := first.waiting[0]
	first.waiting = first.waiting[1:]
	q.waiting--
	return j
}

// remove takes a job out that no longer waits for its result. It reports whether the job was still in the queue.
func (q *queue) remove(j *job) bool {
	a := q.accounts[j.user]
	if a == nil {
		return false
	}
	for i, other := range a.waiting {
		if other == j {
			a.waiting = append(a.waiting[:i:i], a.waiting[i+1:]...)
			q.waiting--
			return true
		}
	}
	return false
}

// charge records what a user has used until now.
func (q *queue) charge(user string, used time.Duration, now time.Time) {
	if a := q.accounts[user]; a != nil {
		a.used, a.at = a.usedAt(now)+used, now
	}
}
