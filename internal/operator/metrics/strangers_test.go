package metrics

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// reviewed counts the requests whose token the API server is asked about, and knows one token.
type reviewed struct{ n int }

func (r *reviewed) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.n++
	if req.Header.Get("Authorization") != "Bearer good" {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
	}
}

func ask(t *testing.T, s *Strangers, host, token string) int {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	req.RemoteAddr = host + ":40000"
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	return w.Code
}

// TestStrangersAreBounded: a flood of unknown tokens makes few reviews, and keeps out neither a scraper on another host nor,
// once it is known, one on the same host.
func TestStrangersAreBounded(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	next := &reviewed{}
	s := &Strangers{Next: next, Clock: clock}
	flood := func(host string) map[int]int {
		got := map[int]int{}
		for i := range 1000 {
			got[ask(t, s, host, fmt.Sprint("made-up-", i))]++
		}
		return got
	}
	if got := ask(t, s, "10.0.0.2", "good"); got != http.StatusOK {
		t.Errorf("a scraper on the attacker's host gets %d before the flood", got)
	}
	next.n = 0
	if got := flood("10.0.0.2"); got[http.StatusUnauthorized] != next.n || next.n != strangersBurst-1 || got[http.StatusTooManyRequests] != 1000-next.n {
		t.Errorf("%d reviews, answers by status %v", next.n, got)
	}
	for _, host := range []string{"10.0.0.1", "10.0.0.2"} {
		if got := ask(t, s, host, "good"); got != http.StatusOK {
			t.Errorf("a scraper on %s gets %d", host, got)
		}
	}
	if got := ask(t, s, "10.0.0.2", ""); got != http.StatusTooManyRequests {
		t.Errorf("no token: %d, want it to count, because the token may be elsewhere in the request", got)
	}
	clock.Step(3 * time.Second)
	next.n = 0
	if flood("10.0.0.2"); next.n != 3 {
		t.Errorf("%d reviews after 3 s, want 3", next.n)
	}
}

// TestKnownTokensAreForgotten: a token is known only while it gets the metrics, and silent hosts take no memory.
func TestKnownTokensAreForgotten(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	revoked := false
	s := &Strangers{Clock: clock, Next: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if revoked {
			w.WriteHeader(http.StatusForbidden)
		}
	})}
	ask(t, s, "10.0.0.1", "good")
	clock.Step(knownFor - time.Second)
	ask(t, s, "10.0.0.1", "good")
	clock.Step(knownFor - time.Second)
	if ask(t, s, "10.0.0.1", "good"); len(s.known) != 1 {
		t.Errorf("%d tokens are known, want 1", len(s.known))
	}
	revoked = true
	if ask(t, s, "10.0.0.1", "good"); len(s.known) != 0 {
		t.Error("a token that is refused is still known")
	}
	for i := range 100 {
		ask(t, s, fmt.Sprint("10.0.1.", i), "bad")
	}
	clock.Step(time.Minute)
	if ask(t, s, "10.0.0.9", "bad"); len(s.hosts) != 1 {
		t.Errorf("%d hosts are remembered, want 1", len(s.hosts))
	}
}
