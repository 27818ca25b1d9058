package keeperapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

func pairs(t *testing.T, now time.Time) map[string][]byte {
	t.Helper()
	p, err := keeperapi.GeneratePairs(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// serve starts a keeper of handler h with the pairs p and returns its address.
func serve(t *testing.T, p map[string][]byte, h http.HandlerFunc) string {
	t.Helper()
	config, err := keeperapi.ServerTLS(p[captureconfig.SecretServerCert], p[captureconfig.SecretServerKey], p[captureconfig.SecretClientCert])
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.TLS = config
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func client(t *testing.T, p map[string][]byte) *keeperapi.Client {
	t.Helper()
	c, err := keeperapi.NewClient(p[captureconfig.SecretServerCert], p[captureconfig.SecretClientCert], p[captureconfig.SecretClientKey])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// keeper answers like a keeper, with a fixed account and a fixed file.
func keeper(stopped *keeperapi.StopRequest) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		keeperapi.SetVersion(w.Header())
		if err := keeperapi.CheckVersion(r.Header); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch {
		case r.URL.Path == keeperapi.PathProgress && r.URL.Query().Get(keeperapi.QueryWatch) == "1":
			fmt.Fprintf(w, "%s\n\n%s\n", capturing, done)
		case r.URL.Path == keeperapi.PathProgress:
			fmt.Fprintln(w, capturing)
		case r.URL.Path == keeperapi.PathFiles+"web.pcapng":
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
		case r.URL.Path == keeperapi.PathFiles+"hostile.pcapng":
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintln(w, `{"error":"no\u001b]0;pwned\u0007\u001b[2J\r\nfile\u202e"}`)
		case r.URL.Path == keeperapi.PathStop && r.Method == http.MethodPost:
			if json.NewDecoder(r.Body).Decode(stopped) == nil {
				w.WriteHeader(http.StatusNoContent)
			}
		case r.URL.Path == keeperapi.PathRelease && r.Method == http.MethodPost:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintln(w, `{"error":"no such file: ask for one of the account's"}`)
		}
	}
}

func TestClient(t *testing.T) {
	p := pairs(t, time.Now())
	var stopped keeperapi.StopRequest
	addr := serve(t, p, keeper(&stopped))
	c, ctx := client(t, p), t.Context()

	a, err := c.Progress(ctx, addr)
	if err != nil || a.Seen != 3 || a.State != account.StateCapturing {
		t.Errorf("Progress: %+v, %v", a, err)
	}
	var states []account.State
	err = c.Watch(ctx, addr, func(a account.Account) error { states = append(states, a.State); return nil })
	if diff := cmp.Diff([]account.State{account.StateCapturing, account.StateDone}, states); diff != "" || err != nil {
		t.Errorf("Watch: %v (-want +got):\n%s", err, diff)
	}
	if err := c.Stop(ctx, addr, account.ReasonAccessRevoked); err != nil || stopped.Reason != account.ReasonAccessRevoked {
		t.Errorf("Stop: %v, the keeper got %q", err, stopped.Reason)
	}
	if err := c.Release(ctx, addr); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestClientFile(t *testing.T) {
	p := pairs(t, time.Now())
	addr := serve(t, p, keeper(nil))
	tests := map[string]struct {
		name, byteRange string
		wantStatus      int
		want            string
		wantMessage     string
	}{
		"whole":         {name: "web.pcapng", wantStatus: 200, want: "0123456789"},
		"range":         {name: "web.pcapng", byteRange: "bytes=3-5", wantStatus: 206, want: "345"},
		"range outside": {name: "web.pcapng", byteRange: "bytes=30-", wantStatus: 416, wantMessage: "no message"},
		"no such file":  {name: "other.pcapng", wantStatus: 404, wantMessage: "ask for one of the account's"},
		"hostile text":  {name: "hostile.pcapng", wantStatus: 409, wantMessage: "no ]0;pwned  [2J  file"},
		"path":          {name: "../../etc/passwd", wantStatus: 404, wantMessage: "ask for one of the account's"},
		"query":         {name: "web.pcapng?watch=1", wantStatus: 404, wantMessage: "ask for one of the account's"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := client(t, p).File(t.Context(), addr, tc.name, tc.byteRange)
			if tc.wantMessage != "" {
				var status *keeperapi.StatusError
				if !errors.As(err, &status) || status.Code != tc.wantStatus || !strings.Contains(status.Message, tc.wantMessage) {
					t.Fatalf("File: %v, want status %d and %q", err, tc.wantStatus, tc.wantMessage)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tc.wantStatus || string(b) != tc.want {
				t.Errorf("File: status %d, %q, %v; want %d, %q", resp.StatusCode, b, err, tc.wantStatus, tc.want)
			}
		})
	}
}

func TestClientRefuses(t *testing.T) {
	now := time.Now()
	p, other, old := pairs(t, now), pairs(t, now), pairs(t, now.Add(-48*time.Hour))
	version := func(v string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(keeperapi.Header, v)
			fmt.Fprintln(w, capturing)
		}
	}
	tests := map[string]struct {
		server, client map[string][]byte
		handler        http.HandlerFunc
		wantErr        string
	}{
		"another keeper":       {server: withKey(p, other, captureconfig.SecretServerCert, captureconfig.SecretServerKey), client: p, handler: keeper(nil), wantErr: "certificate"},
		"another manager":      {server: p, client: withKey(p, other, captureconfig.SecretClientCert, captureconfig.SecretClientKey), handler: keeper(nil), wantErr: "tls"},
		"certificates too old": {server: old, client: old, handler: keeper(nil), wantErr: "expired"},
		"newer keeper":         {server: p, client: p, handler: version("2"), wantErr: "upgrade the older side"},
		"no keeper":            {server: p, client: p, handler: version(""), wantErr: "not a part of Sonde"},
		"redirect": {server: p, client: p, wantErr: "keeper answers 302", handler: func(w http.ResponseWriter, r *http.Request) {
			keeperapi.SetVersion(w.Header())
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}},
		"endless answer": {server: p, client: p, wantErr: "at most 4096", handler: func(w http.ResponseWriter, _ *http.Request) {
			keeperapi.SetVersion(w.Header())
			for range 100 {
				fmt.Fprint(w, strings.Repeat("x", 4096))
			}
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			addr := serve(t, tc.server, tc.handler)
			_, err := client(t, tc.client).Progress(t.Context(), addr)
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), addr) {
				t.Fatalf("Progress: %v, want an error with %q and the address", err, tc.wantErr)
			}
		})
	}
}

func withKey(p, other map[string][]byte, keys ...string) map[string][]byte {
	mixed := maps.Clone(p)
	for _, k := range keys {
		mixed[k] = other[k]
	}
	return mixed
}

func TestClientEndsWithItsContext(t *testing.T) {
	p := pairs(t, time.Now())
	addr := serve(t, p, func(w http.ResponseWriter, r *http.Request) {
		keeperapi.SetVersion(w.Header())
		fmt.Fprintln(w, capturing)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	err := client(t, p).Watch(ctx, addr, func(account.Account) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Watch: %v, want a canceled context", err)
	}
}

func TestNewClientRefusesBadMaterial(t *testing.T) {
	p := pairs(t, time.Now())
	cert, key := p[captureconfig.SecretClientCert], p[captureconfig.SecretClientKey]
	tests := map[string]struct{ server, cert, key []byte }{
		"no server certificate":   {cert: cert, key: key},
		"two server certificates": {server: append(append([]byte{}, cert...), cert...), cert: cert, key: key},
		"a key for a certificate": {server: key, cert: cert, key: key},
		"another's key":           {server: cert, cert: cert, key: p[captureconfig.SecretServerKey]},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := keeperapi.NewClient(tc.server, tc.cert, tc.key); err == nil {
				t.Fatal("NewClient accepted it")
			}
		})
	}
}
