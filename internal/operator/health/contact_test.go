package health

import (
	"errors"
	"net/http"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestContact(t *testing.T) {
	away := errors.New("no connection")
	for name, tc := range map[string]struct {
		status int
		err    error
		after  time.Duration
		want   bool // it is ready
	}{
		"an answer":             {status: http.StatusOK, after: time.Minute, want: true},
		"an answer of long ago": {status: http.StatusOK, after: time.Minute + 1},
		"no right to anything":  {status: http.StatusForbidden},
		"its storage is away":   {status: http.StatusInternalServerError},
		"no connection":         {err: away},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakePassiveClock(time.Now())
			c := &Contact{Limit: time.Minute, Clock: clk}
			if c.Check(nil) == nil {
				t.Error("ready before the first answer")
			}
			_, err := c.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
				if tc.err != nil {
					return nil, tc.err
				}
				return &http.Response{StatusCode: tc.status, Body: http.NoBody}, nil
			})).RoundTrip(&http.Request{}) //nolint:bodyclose // it has none
			if !errors.Is(err, tc.err) {
				t.Errorf("error %v, want %v", err, tc.err)
			}
			clk.SetTime(clk.Now().Add(tc.after))
			if err := c.Check(nil); (err == nil) != tc.want {
				t.Errorf("check says %v, want it ready: %t", err, tc.want)
			}
		})
	}
}
