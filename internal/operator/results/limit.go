package results

import (
	"net/http"
	"sync"
)

// Bounds of what is served at once by one replica. Everybody who is logged in can knock, so the
// first bound holds before anything is looked up; the second keeps one user from taking it all: tokens
// he can have as many as he likes. Connections that ask nothing cost memory too.
const (
	maxRequests    = 64
	maxPerUser     = 16
	maxConnections = 1024
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
