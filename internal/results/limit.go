package results

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of what is served at once by one replica. Everybody who is logged in can knock, so the
// first bound holds before anything is looked up; the second keeps one token from taking it all.
const (
	maxRequests  = 64
	maxPerAccess = 16
)

// limiter counts what is being served.
type limiter struct {
	most, mostEach int

	mu   sync.Mutex
	all  int
	each map[types.UID]int
}

func newLimiter(most, mostEach int) *limiter {
	return &limiter{most: most, mostEach: mostEach, each: map[types.UID]int{}}
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

// enterFor counts a request of one ResultAccess.
func (l *limiter) enterFor(uid types.UID) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.each[uid] >= l.mostEach {
		return nil, &failure{
			code: http.StatusTooManyRequests, header: http.Header{"Retry-After": {"2"}},
			message: "too many requests with this token at once: wait until one of them has ended",
		}
	}
	l.each[uid]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.each[uid]--; l.each[uid] == 0 {
			delete(l.each, uid)
		}
	}, nil
}
