package results

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
)

const prefix = "/api/v1/namespaces/sonde-system/services/https:sonde-results:https/proxy/v1/namespaces/shop/packetcaptures/web"

// quick is a Timing for tests.
var quick = Timing{Propagation: time.Minute, Pause: time.Millisecond, Idle: 2 * time.Second, Retries: 3}

// tokens counts its calls.
type tokens struct {
	mu        sync.Mutex
	age       time.Duration
	made      int
	forgotten bool
}

func (s *tokens) Token(context.Context) (Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == 0 || s.forgotten {
		s.made, s.forgotten = s.made+1, false
	}
	return Token{Text: "token-" + strconv.Itoa(s.made), Access: "access-1", Age: s.age}, nil
}

func (s *tokens) Invalidate(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = true
}

func newTestClient(t *testing.T, timing Timing, s Tokens, h http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL, Timeout: time.Nanosecond}, "sonde-system", named(&v1alpha1.PacketCapture{}), s, timing, 0)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// named gives a capture the name that all tests use.
func named(c v1alpha1.Capture) v1alpha1.Capture {
	c.SetNamespace("shop")
	c.SetName("web")
	c.SetUID("uid-1")
	return c
}

// refuse answers as the manager does.
func refuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"error":%q}`, message)
}

// apiRefuse answers as the API server does.
func apiRefuse(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"code":%d}`, message, code)
}

func TestRequestsGoThroughTheProxyWithTheToken(t *testing.T) {
	var path, token, access string
	c := newTestClient(t, quick, &tokens{}, func(_ http.ResponseWriter, r *http.Request) {
		path, token, access = r.URL.Path, r.Header.Get("X-Sonde-Token"), r.Header.Get("X-Sonde-Access")
	})
	if err := c.Progress(t.Context(), func(Update) {}); err != nil {
		t.Fatal(err)
	}
	if path != prefix+"/progress" || token != "token-1" || access != "access-1" {
		t.Errorf("asked for %s with token %q of %q", path, token, access)
	}
}

// TestNoRedirects: the user's credentials go nowhere else, although the API server passes redirects of the endpoint on.
func TestNoRedirects(t *testing.T) {
	asked := make(chan string, 10)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	c, err := NewClient(&rest.Config{Host: server.URL, BearerToken: "secret"}, "sonde-system", named(&v1alpha1.Trace{}), &tokens{}, quick, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, by := range []*http.Client{c.rest.Client, c.live} {
		resp, err := c.query(t.Context(), by, nil, nil, "progress")
		if refused, ok := errors.AsType[*Error](err); !ok || refused.Code != http.StatusTemporaryRedirect {
			t.Errorf("error %v", err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
	}
	select {
	case got := <-asked:
		t.Errorf("another server is asked, with %q", got)
	default:
	}
}

// Each kind has its own paths.
func TestPaths(t *testing.T) {
	for capture, want := range map[v1alpha1.Capture]string{
		&v1alpha1.PacketCapture{}: prefix + "/progress",
		&v1alpha1.Trace{}:         strings.Replace(prefix, "packetcaptures", "traces", 1) + "/progress",
	} {
		var path string
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { path = r.URL.Path }))
		t.Cleanup(server.Close)
		c, err := NewClient(&rest.Config{Host: server.URL}, "sonde-system", named(capture), &tokens{}, quick, 0)
		if err == nil {
			err = c.Progress(t.Context(), func(Update) {})
		}
		if err != nil || path != want {
			t.Errorf("%s: asked for %s, want %s (%v)", capture.KindName(), path, want, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		age       time.Duration
		refusals  int // before the endpoint answers
		refuse    func(w http.ResponseWriter)
		wantAsked int
		wantMade  int
		wantErr   string
	}{
		"the manager has not yet observed the ResultAccess": {
			refusals: 3, refuse: func(w http.ResponseWriter) { refuse(w, 403, "no such access") }, wantAsked: 4, wantMade: 1,
		},
		"the manager has not yet observed the capture": {
			refusals: 2, refuse: func(w http.ResponseWriter) { refuse(w, 404, "no such capture") }, wantAsked: 3, wantMade: 1,
		},
		"the token has expired": {
			age: time.Hour, refusals: 1, refuse: func(w http.ResponseWriter) { refuse(w, 401, "expired") }, wantAsked: 2, wantMade: 2,
		},
		"a new token does not help": {
			age: time.Hour, refusals: 9, refuse: func(w http.ResponseWriter) { refuse(w, 403, "you may not capture there") },
			wantAsked: 2, wantMade: 2, wantErr: "you may not capture there",
		},
		"the file is gone": {
			refusals: 9, refuse: func(w http.ResponseWriter) { refuse(w, 410, "kept until 12:00; capture again") },
			wantAsked: 1, wantMade: 1, wantErr: "kept until 12:00; capture again",
		},
		"a 403 of the API server does not renew the token": {
			refusals: 9, refuse: func(w http.ResponseWriter) { apiRefuse(w, 403, "services is forbidden") },
			wantAsked: 1, wantMade: 1, wantErr: "services is forbidden",
		},
		"no operator in that namespace": {
			refusals: 9, refuse: func(w http.ResponseWriter) { apiRefuse(w, 404, `services "sonde-results" not found`) },
			wantAsked: 1, wantMade: 1,
			wantErr: `services "sonde-results" not found: if Sonde is installed in another namespace, name it with --operator-namespace`,
		},
		"the operator is down": {
			refusals: 9, refuse: func(w http.ResponseWriter) { apiRefuse(w, 503, "no endpoints available") },
			wantAsked: 1, wantMade: 1, wantErr: "no endpoints available: the operator is not ready; check the Pods in its namespace",
		},
		"a proxy answers": {
			refusals: 9, refuse: func(w http.ResponseWriter) { http.Error(w, "<html>", http.StatusTeapot) },
			wantAsked: 1, wantMade: 1, wantErr: "the results endpoint answered 418 I'm a teapot",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			asked := 0
			s := &tokens{age: tc.age}
			c := newTestClient(t, quick, s, func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked <= tc.refusals {
					tc.refuse(w)
				}
			})
			err := c.Progress(t.Context(), func(Update) {})
			if got := fmt.Sprint(err); (err == nil) != (tc.wantErr == "") || (err != nil && got != tc.wantErr) {
				t.Errorf("error %q, want %q", got, tc.wantErr)
			}
			if asked != tc.wantAsked || s.made != tc.wantMade {
				t.Errorf("asked %d times with %d tokens, want %d with %d", asked, s.made, tc.wantAsked, tc.wantMade)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	c := newTestClient(t, quick, &tokens{}, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"pod":"web-1","uid":"u1","node":"n1","phase":"Capturing","account":{"v":1,"state":"capturing","seen":3,"packets":2,"bytes":200,"dropRing":1}}`)
		fmt.Fprintln(w)
		fmt.Fprintln(w, `{"pod":"web-2","uid":"u2","node":"n2","phase":"Capturing","error":"the keeper does not answer"}`)
		fmt.Fprintln(w, `{"pod":"web-3","uid":"u3","account":{"v":99}}`)
	})
	var got []Update
	if err := c.Progress(t.Context(), func(u Update) { got = append(got, u) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Fatalf("%d updates, want 3: %+v", len(got), got)
	}
	if a := got[0].Account; a == nil || a.Packets != 2 || a.Dropped() != 1 {
		t.Errorf("account of the first: %+v", a)
	}
	if got[1].Account != nil || got[1].Error != "the keeper does not answer" {
		t.Errorf("second: %+v", got[1])
	}
	if got[2].Account != nil || !strings.Contains(got[2].Error, "version 99") {
		t.Errorf("third, of an unknown version: %+v", got[2])
	}
}

// TestProgressContinues: a stream that the manager ends is continued, and the user is not bothered with it. The last state
// of each Pod is that of the capture, whatever was cut off.
func TestProgressContinues(t *testing.T) {
	asked := 0
	c := newTestClient(t, quick, &tokens{}, func(w http.ResponseWriter, _ *http.Request) {
		line := func(packets int) {
			fmt.Fprintf(w, `{"pod":"web-1","uid":"u1","phase":"Capturing","account":{"v":1,"state":"capturing","seen":%[1]d,"packets":%[1]d}}`+"\n", packets)
		}
		switch asked++; asked {
		case 1, 2:
			line(asked)
			fmt.Fprint(w, `{"pod":"web-1","ui`) // cut
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			line(7)
		}
	})
	var got []int64
	if err := c.Progress(t.Context(), func(u Update) { got = append(got, u.Account.Packets) }); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != "[1 2 7]" {
		t.Errorf("counts %v, want those of three connections", got)
	}
}

// TestProgressSaysThatItCannotContinue: a refusal after a stream has broken off is the user's to know.
func TestProgressSaysThatItCannotContinue(t *testing.T) {
	asked := 0
	c := newTestClient(t, quick, &tokens{age: time.Hour}, func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked > 1 {
			w.Header().Set("Retry-After", "2")
			refuse(w, 429, "this user has 16 streams open")
			return
		}
		fmt.Fprintln(w, `{"uid":"u1"}`)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	err := c.Progress(t.Context(), func(Update) {})
	var refused *Error
	if !errors.As(err, &refused) || refused.Message != "this user has 16 streams open" || refused.RetryAfter != 2*time.Second {
		t.Errorf("error %v, want the refusal", err)
	}
}

func TestProgressNoticesSilence(t *testing.T) {
	timing := quick
	timing.Idle = 20 * time.Millisecond
	c := newTestClient(t, timing, &tokens{}, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	err := c.Progress(t.Context(), func(Update) {})
	if err == nil || !strings.Contains(err.Error(), "stopped sending") {
		t.Errorf("error %v, want one about silence", err)
	}
}

func FuzzParseUpdate(f *testing.F) {
	f.Add([]byte(`{"pod":"web-1","uid":"u1","phase":"Capturing","account":{"v":1,"state":"done"}}`))
	f.Add([]byte(`{"uid":"u","account":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := parseUpdate(b)
		if err == nil && u.UID == "" {
			t.Error("an update of no Pod")
		}
		if err == nil && u.Account != nil && u.Account.Packets < 0 {
			t.Error("a negative count")
		}
	})
}
