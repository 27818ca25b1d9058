package results

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const livePath = "/api/v1/namespaces/sonde-system/services/https:sonde-results:https/proxy/v1/namespaces/shop/traces/web/live/u1/web-1.ndjson"

// newLiveClient returns a client of a trace. serve answers the nth request for its lines.
func newLiveClient(t *testing.T, timing Timing, s Tokens, serve func(n int, w http.ResponseWriter, r *http.Request)) *Client {
	t.Helper()
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != livePath {
			t.Errorf("asked for %s", r.URL.Path)
		}
		n++
		serve(n, w, r)
	}))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL}, "sonde-system", named(&v1alpha1.Trace{}), s, timing)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func skip(t *testing.T, n int64) string {
	t.Helper()
	b, err := tracefmt.AppendSkip(nil, n)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A stream whose connection is lost continues after its last complete line. Heartbeats and skips are not lines.
func TestLive(t *testing.T) {
	var asked []string
	c := newLiveClient(t, quick, &tokens{}, func(n int, w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		switch n {
		case 1:
			refuse(w, http.StatusNotFound, "no file web-1.ndjson of this Pod")
		case 2:
			fmt.Fprint(w, "{\"n\":1}\n\n{\"n\":2}\n"+skip(t, 100)+"\n{\"n\"")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case 3:
			apiRefuse(w, http.StatusServiceUnavailable, "no endpoints available")
		default:
			fmt.Fprint(w, "{\"n\":3}\n")
		}
	})
	var got bytes.Buffer
	if err := c.Live(t.Context(), "u1", "web-1.ndjson", true, &got); err != nil {
		t.Fatal(err)
	}
	if want := "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"; got.String() != want {
		t.Errorf("lines %q, want %q", got.String(), want)
	}
	const first, then = "from=0&newest=1", "from=116&newest=1"
	if len(asked) < 4 || asked[0] != first || asked[len(asked)-1] != then {
		t.Errorf("asked for %q, want at first %s, and %s at the end", asked, first, then)
	}
}

func TestLiveErrors(t *testing.T) {
	aged := func() *tokens { return &tokens{age: time.Hour} }
	for name, tc := range map[string]struct {
		serve   func(http.ResponseWriter)
		to      io.Writer
		want    string
		wantIs  error
		wantNot error
	}{
		"an older operator": {
			serve: func(w http.ResponseWriter) { refuse(w, 404, "no such path: GET /v1/namespaces/...") },
			want:  "older than this plugin", wantIs: ErrNoLiveLines,
		},
		"gone": {serve: func(w http.ResponseWriter) { refuse(w, 410, "the files are gone") }, want: "follow web-1.ndjson: the files are gone", wantNot: ErrNoLiveLines},
		"no operator": {
			serve: func(w http.ResponseWriter) { apiRefuse(w, 404, `services "sonde-results" not found`) }, want: "--operator-namespace", wantNot: ErrNoLiveLines,
		},
		"no reader":       {serve: func(w http.ResponseWriter) { fmt.Fprintln(w, "{}") }, to: closedWriter{}, want: "the output could not be written", wantIs: io.ErrClosedPipe},
		"an endless line": {serve: func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat("x", tracefmt.MaxLine+10)) }, want: "token too long"},
	} {
		t.Run(name, func(t *testing.T) {
			to := tc.to
			if to == nil {
				to = io.Discard
			}
			c := newLiveClient(t, quick, aged(), func(_ int, w http.ResponseWriter, _ *http.Request) { tc.serve(w) })
			err := c.Live(t.Context(), "u1", "web-1.ndjson", false, to)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
			if tc.wantIs != nil && !errors.Is(err, tc.wantIs) || tc.wantNot != nil && errors.Is(err, tc.wantNot) {
				t.Errorf("error %v is of another kind", err)
			}
		})
	}
}

// closedWriter is a writer without a reader.
type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
