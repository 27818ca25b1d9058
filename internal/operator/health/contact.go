package health

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Contact knows when the API server last answered with what was asked for. It asks nothing itself: a replica renews
// its lease, or looks at it, every two seconds.
type Contact struct {
	// Limit after which the API server counts as away.
	Limit time.Duration
	Clock clock.PassiveClock

	last atomic.Int64 // in nanoseconds since 1970
}

// Wrap is for rest.Config.Wrap: all that is sent through next tells c how it went.
func (c *Contact) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		// A refusal is no contact that helps: who may read nothing can decide nothing.
		if err == nil && resp.StatusCode < http.StatusBadRequest {
			c.last.Store(c.Clock.Now().UnixNano())
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Check is a readiness check: a replica that cannot reach the API server can decide on no request.
func (c *Contact) Check(*http.Request) error {
	last := c.last.Load()
	if last == 0 {
		return errors.New("the API server has not answered yet: see the manager's log for what keeps it")
	}
	if ago := c.Clock.Since(time.Unix(0, last)); ago > c.Limit {
		return fmt.Errorf("the API server last answered %s ago: see the manager's log for what keeps it", ago.Round(time.Second))
	}
	return nil
}
