package results

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
)

// TestRefusalsOfTheUnknownAreBounded: a flood without a token leaves room in the log, and is counted there.
func TestRefusalsOfTheUnknownAreBounded(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	clk := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	r, f := newRefusals(clk), &failure{code: http.StatusUnauthorized, message: "no token"}

	for range 1000 {
		r.record(log, f, false)
	}
	const burst = 100 // of audit.Bound
	if len(lines) != burst {
		t.Errorf("%d records of 1000 unknown requesters, want %d", len(lines), burst)
	}
	lines = nil
	for range 1000 {
		r.record(log, f, true)
	}
	if len(lines) != 1000 || slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "omitted") }) {
		t.Errorf("%d records of 1000 known requesters: %s", len(lines), lines[0])
	}
	lines = nil
	clk.SetTime(clk.Now().Add(time.Second))
	r.record(log, f, false)
	if len(lines) != 1 || !strings.Contains(lines[0], `"omitted"=900`) {
		t.Errorf("got %q, want one record that says how many were omitted", lines)
	}
}

// TestOnlyAValidTokenMakesKnown: after a flood of requests without a token, each refusal of alice still has its record.
func TestOnlyAValidTokenMakesKnown(t *testing.T) {
	w := newWorld(t)
	w.handler.refusals = newRefusals(clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	refuse := func(token string) {
		r := httptest.NewRequestWithContext(ctrl.LoggerInto(t.Context(), log), http.MethodGet, strings.Replace(webFile, "pod-1", "pod-2", 1), nil)
		r.Header.Set(TokenHeader, token)
		w.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	const burst = 100 // of audit.Bound
	for range 2 * burst {
		refuse("")
	}
	if len(lines) != burst {
		t.Errorf("%d records of requests without a token, want %d", len(lines), burst)
	}
	lines = nil
	for range 10 {
		refuse(token)
	}
	if len(lines) != 10 || !strings.Contains(lines[9], `"requester"="alice"`) {
		t.Errorf("got %q, want 10 records of alice", lines)
	}
}
