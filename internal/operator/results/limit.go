package results

import (
	"net/http"
	"sync"
)

// MaxConnections is the bound of Server.MaxConnections for one replica: connections without a request cost memory, too.
const MaxConnections = 1024

// Bounds of the requests that one replica serves at once. Every user who is logged in can send requests, so maxRequests
// holds before any lookup. maxPerUser leaves room for other users: one user may have any number of tokens.
const (
	maxRequests = 64
	maxPerUser  = 16
)

// limiter counts what is being served.
type limiter struct {
	most, mostEach int

	mu   sync.Mutex
	all  int
	each map[string]int
}

func newLimiter(most, mostEach int) *limiter {
	return &limiter{most: most, mostEach: mostEach, each: map[string]int{}}
}

// enter counts a request; the caller calls what it gets when it has been served.
func (l *limiter) enter() (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most {
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

// enterFor counts a request of one user.
func (l *limiter) enterFor(user string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.each[user] >= l.mostEach {
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
