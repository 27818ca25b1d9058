package health

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Contact records when the API server last answered a request with success. It sends no requests: every replica renews or
// reads its lease every two seconds.
type Contact struct {
	// Limit of the time since the last answer.
	Limit time.Duration
	Clock clock.PassiveClock

	last atomic.Int64 // in nanoseconds since 1970
}

// Wrap is for rest.Config.Wrap. It records the answers to requests that are sent through next.
func (c *Contact) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		// A refusal does not count: a manager that may read nothing can decide nothing.
		if err == nil && resp.StatusCode < http.StatusBadRequest {
			c.last.Store(c.Clock.Now().UnixNano())
		}
		return resp, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Check is a readiness check. A replica that cannot reach the API server can decide on no request.
func (c *Contact) Check(*http.Request) error {
	last := c.last.Load()
	if last == 0 {
		return errors.New("the API server has not answered yet: see the manager's log for the reason")
	}
	if ago := c.Clock.Since(time.Unix(0, last)); ago > c.Limit {
		return fmt.Errorf("the API server last answered %s ago: see the manager's log for the reason", ago.Round(time.Second))
	}
	return nil
}
