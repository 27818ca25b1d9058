package results

import (
	"net/http"
	"sync"
)

// MaxConnections is the bound of Server.MaxConnections for one replica: connections without a request cost memory, too.
const MaxConnections = 1024

// Bounds of the requests that one replica serves at once. Every authenticated user can send requests, so maxRequests is
// enforced before any lookup. maxPerUser leaves room for other users: one user may have any number of tokens.
const (
	maxRequests = 64
	maxPerUser  = 16
)

// limiter counts running requests.
type limiter struct {
	limit, limitPerUser int

	mu   sync.Mutex
	all  int
	each map[string]int
}

func newLimiter(limit, limitPerUser int) *limiter {
	return &limiter{limit: limit, limitPerUser: limitPerUser, each: map[string]int{}}
}

// enter counts a request until leave is called.
func (l *limiter) enter() (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.limit {
		return nil, &failure{
			code: http.StatusServiceUnavailable, header: http.Header{"Retry-After": {"2"}},
			message: "too many results are being read at this moment: try again",
		}
	}
	l.all++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
	}, nil
}

// enterFor counts a request of one user until leave is called.
func (l *limiter) enterFor(user string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.each[user] >= l.limitPerUser {
		return nil, &failure{
			code: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"2"}},
			message: "too many requests of one user at once: wait until one of them has ended",
		}
	}
	l.each[user]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.each[user]--; l.each[user] == 0 {
			delete(l.each, user)
		}
	}, nil
}
