package admission

import "sync"

// lane bounds the bytes of requests that are in flight at once: together, for each namespace and for each user. The first
// request of each fits, however large, while the lane has room. Another one fits only if its namespace leaves as much room
// as it takes. So the first namespace gets at most half, and each next one half of the rest.
type lane struct {
	limit, perNamespace, perUser int64

	mu                sync.Mutex
	used              int64
	namespaces, users map[string]int64
}

func newLane(limit, perUser int64) *lane {
	return &lane{limit: limit, perNamespace: tenantBytes, perUser: perUser, namespaces: map[string]int64{}, users: map[string]int64{}}
}

// enter takes n bytes until leave is called once. It returns false if they do not fit.
func (l *lane) enter(n int64, namespace, user string) (leave func(), ok bool) {
	fits := func(used, limit int64) bool { return used == 0 || used+n <= limit }
	l.mu.Lock()
	defer l.mu.Unlock()
	share := min(l.perNamespace, l.limit-l.used-n)
	if !fits(l.used, l.limit) || !fits(l.namespaces[namespace], share) || !fits(l.users[user], l.perUser) {
		return nil, false
	}
	l.add(n, namespace, user)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.add(-n, namespace, user)
	}, true
}

func (l *lane) add(n int64, namespace, user string) {
	l.used += n
	charge(l.namespaces, namespace, n)
	charge(l.users, user, n)
}

func charge(used map[string]int64, key string, n int64) {
	if used[key] += n; used[key] == 0 {
		delete(used, key)
	}
}
