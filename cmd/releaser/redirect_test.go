package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	ociregistry "github.com/google/go-containerregistry/pkg/registry"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// visits records which paths of a server were asked for with credentials, and without.
type visits struct {
	mu            sync.Mutex
	with, without []string
}

func (v *visits) add(r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.Header.Get("Authorization") != "" {
		v.with = append(v.with, r.URL.Path)
	} else {
		v.without = append(v.without, r.URL.Path)
	}
}

// redirecting is a server whose path /to/NAME redirects to targets[NAME]. It answers "ok" to any other path but /secret, which it forbids.
func redirecting(tb testing.TB, start func(http.Handler) *httptest.Server, targets map[string]string) (*httptest.Server, *visits) {
	tb.Helper()
	v := &visits{}
	server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.add(r)
		switch name, ok := strings.CutPrefix(r.URL.Path, "/to/"); {
		case ok:
			http.Redirect(w, r, targets[name], http.StatusFound)
		case r.URL.Path == "/secret":
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = io.WriteString(w, "ok")
		}
	}))
	tb.Cleanup(server.Close)
	return server, v
}

// certificateOf returns the certificate of a server with TLS, in PEM.
func certificateOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// chartAt returns the chart "shop" of a registry with TLS.
func chartAt(server *httptest.Server) release.Chart {
	return release.Chart{URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/charts/shop", CABundle: certificateOf(server)}
}

// TestRedirectsOfARepository follows redirects. Only the server of the URL gets the credentials, and only by TLS.
func TestRedirectsOfARepository(t *testing.T) {
	for name, tc := range map[string]struct {
		path            string
		origin, another []string // paths that get credentials, and none
		plain           []string // without TLS, and without credentials
		text            string
	}{
		"none":                        {path: "/chart", origin: []string{"/chart"}},
		"the same server":             {path: "/to/self", origin: []string{"/to/self", "/chart"}},
		"another port":                {path: "/to/another", origin: []string{"/to/another"}, another: []string{"/chart"}},
		"another port, which goes on": {path: "/to/further", origin: []string{"/to/further"}, another: []string{"/to/self", "/chart"}},
		"without TLS":                 {path: "/to/plain", origin: []string{"/to/plain"}, plain: []string{"/chart"}},
		"without TLS, which goes on":  {path: "/to/plainer", origin: []string{"/to/plainer"}, plain: []string{"/to/self", "/chart"}},
		"refused there":               {path: "/to/secret", origin: []string{"/to/secret"}, another: []string{"/secret"}, text: "which gets no credentials because it is another server, and answers 403 Forbidden: set chart.url"},
		"without end":                 {path: "/to/loop", origin: slices.Repeat([]string{"/to/loop"}, maxRedirects), text: "10 redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			targets, others, plains := map[string]string{"self": "/chart", "loop": "/to/loop"}, map[string]string{"self": "/chart"}, map[string]string{"self": "/chart"}
			another, anotherGot := redirecting(t, httptest.NewTLSServer, others)
			plain, plainGot := redirecting(t, httptest.NewServer, plains)
			origin, originGot := redirecting(t, httptest.NewTLSServer, targets)
			targets["another"], targets["further"], targets["secret"] = another.URL+"/chart", another.URL+"/to/self", another.URL+"/secret"
			targets["plain"], targets["plainer"] = plain.URL+"/chart", plain.URL+"/to/self"
			client, err := httpClient(certificateOf(origin))
			if err != nil {
				t.Fatal(err)
			}
			from, err := url.Parse(origin.URL + tc.path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := get(t.Context(), client, from, &credentials{"ann", "secret"}, maxIndex)
			switch {
			case tc.text != "" && (err == nil || !strings.Contains(err.Error(), tc.text)):
				t.Errorf("error %v, want %q", err, tc.text)
			case tc.text == "" && (err != nil || string(b) != "ok"):
				t.Errorf("%q, %v; want ok", b, err)
			}
			for what, pair := range map[string][2][]string{
				"the origin, with credentials":          {originGot.with, tc.origin},
				"the origin, without":                   {originGot.without, nil},
				"the other server, with credentials":    {anotherGot.with, nil},
				"the other server, without":             {anotherGot.without, tc.another},
				"the server without TLS, with":          {plainGot.with, nil},
				"the server without TLS, without those": {plainGot.without, tc.plain},
			} {
				if !slices.Equal(pair[0], pair[1]) {
					t.Errorf("%s: %v, want %v", what, pair[0], pair[1])
				}
			}
		})
	}
}

func TestIsSameOrigin(t *testing.T) {
	for other, want := range map[string]bool{
		"https://charts.example.com/b?c":   true,
		"https://charts.example.com:443/":  true,
		"https://Charts.Example.com/":      true,
		"https://charts.example.com:8443/": false,
		"http://charts.example.com/":       false,
		"http://charts.example.com:443/":   false,
		"https://a.charts.example.com/":    false,
		"https://example.com/":             false,
	} {
		a, err1 := url.Parse("https://charts.example.com/a")
		b, err2 := url.Parse(other)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if got := isSameOrigin(a, b) && isSameOrigin(b, a); got != want {
			t.Errorf("%s: %t, want %t", other, got, want)
		}
	}
}

// TestRedirectsOfARegistry pulls a chart whose blobs are elsewhere, as those of most registries are. The credentials stay with the registry.
func TestRedirectsOfARegistry(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"another port": httptest.NewTLSServer, "without TLS": httptest.NewServer} {
		t.Run(name, func(t *testing.T) {
			content, _ := pack(t, "1.2.0")
			blobs := ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0)))
			storageGot, registryGot := &visits{}, &visits{}
			storage := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				storageGot.add(r)
				if to, ok := strings.CutPrefix(r.URL.Path, "/from"); ok { // on to another path of this server
					http.Redirect(w, r, to, http.StatusTemporaryRedirect)
					return
				}
				blobs.ServeHTTP(w, r)
			}))
			t.Cleanup(storage.Close)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if user, password, ok := r.BasicAuth(); !ok || user != "ann" || password != "secret" {
					w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				registryGot.add(r)
				if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, storage.URL+"/from"+r.URL.Path, http.StatusTemporaryRedirect)
					return
				}
				blobs.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)
			c := chartAt(server)
			client, err := registryClient(c, &credentials{"ann", "secret"})
			if err != nil {
				t.Fatal(err)
			}
			ref := strings.TrimPrefix(server.URL, "https://") + "/charts/shop:1.2.0"
			if _, err := client.Push(content, ref); err != nil {
				t.Fatal(err)
			}
			pulled, err := client.Pull(ref)
			if err != nil || string(pulled.Chart.Data) != string(content) {
				t.Fatalf("pull: %v", err)
			}
			if len(storageGot.with) != 0 || len(storageGot.without) < 2 {
				t.Errorf("the blobs' server was asked with credentials for %v, without for %v", storageGot.with, storageGot.without)
			}
			if len(registryGot.with) == 0 {
				t.Error("the registry got no credentials")
			}
		})
	}
}

// TestTagsOfARegistryThatRedirects lists the tags of a registry whose list is on another server. That one asks for credentials on its second
// page, which has an origin of its own: no redirect leads there.
func TestTagsOfARegistryThatRedirects(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"another port": httptest.NewTLSServer, "without TLS": httptest.NewServer} {
		t.Run(name, func(t *testing.T) {
			anotherGot, registryGot := &visits{}, &visits{}
			another := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				anotherGot.add(r)
				if r.URL.Query().Has("last") && r.Header.Get("Authorization") == "" {
					w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				if !r.URL.Query().Has("last") {
					w.Header().Set("Link", `<`+r.URL.Path+`?last=1.0.0>; rel="next"`)
				}
				_, _ = io.WriteString(w, `{"tags":["1.0.0"]}`)
			}))
			t.Cleanup(another.Close)
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				registryGot.add(r)
				if r.Header.Get("Authorization") == "" {
					w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
					w.WriteHeader(http.StatusUnauthorized)
					return
				}
				http.Redirect(w, r, another.URL+r.URL.Path, http.StatusTemporaryRedirect)
			}))
			t.Cleanup(server.Close)
			c := chartAt(server)
			client, err := registryClient(c, &credentials{"ann", "secret"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Tags(strings.TrimPrefix(c.URL, "oci://"))
			if err == nil {
				t.Fatal("the list is complete, although its second page needs credentials")
			}
			if err := registryProblem(c, err); reasonOf(err) != release.ReasonChartForbidden || !strings.Contains(err.Error(), another.URL) {
				t.Errorf("%s: %v; want %s with the other server", reasonOf(err), err, release.ReasonChartForbidden)
			}
			if len(anotherGot.with) != 0 || len(anotherGot.without) < 2 {
				t.Errorf("the other server was asked with credentials for %v, without for %v", anotherGot.with, anotherGot.without)
			}
			if len(registryGot.with) == 0 {
				t.Error("the registry got no credentials")
			}
		})
	}
}

// TestNoChallengeWithoutTLS lists the tags of a registry that redirects to its own host without TLS. There an attacker answers, and names a
// token server, which would get the credentials by TLS.
func TestNoChallengeWithoutTLS(t *testing.T) {
	const host = "registry.example.com"
	var withPassword []string
	answers := roundTripper(func(r *http.Request) (*http.Response, error) {
		if user, password, ok := r.BasicAuth(); ok && user == "ann" && password == "secret" {
			withPassword = append(withPassword, r.URL.Host)
		}
		w := httptest.NewRecorder()
		switch {
		case r.URL.Host != host:
			_, _ = io.WriteString(w, `{"token":"stolen"}`)
		case r.URL.Scheme == "https":
			w.Header().Set("Location", "http://"+host+r.URL.Path)
			w.WriteHeader(http.StatusTemporaryRedirect)
		case !r.URL.Query().Has("last"):
			w.Header().Set("Link", `<`+r.URL.Path+`?last=1.0.0>; rel="next"`)
			_, _ = io.WriteString(w, `{"tags":["1.0.0"]}`)
		default:
			w.Header().Set("WWW-Authenticate", `Bearer realm="https://evil.example.com/token",service="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
		resp := w.Result()
		resp.Request = r
		return resp, nil
	})
	client, err := registryClientOver(&http.Client{Transport: answers, CheckRedirect: redirect}, release.Chart{URL: "oci://" + host + "/charts/shop"}, &credentials{"ann", "secret"})
	if err != nil {
		t.Fatal(err)
	}
	if tags, err := client.Tags(host + "/charts/shop"); err == nil {
		t.Errorf("tags %v", tags)
	}
	if len(withPassword) != 0 {
		t.Errorf("the password went to %v", withPassword)
	}
}

// TestNoCredentialsWithoutTLS: a registry that redirects to its own host without TLS has the host that the credentials are for.
func TestNoCredentialsWithoutTLS(t *testing.T) {
	for scheme, want := range map[string]bool{"http": false, "https": true} {
		sent := false
		to := bounded{roundTripper(func(*http.Request) (*http.Response, error) {
			sent = true
			return &http.Response{Body: http.NoBody}, nil
		})}
		r := httptest.NewRequest(http.MethodGet, scheme+"://registry.example.com/v2/charts/shop/tags/list", http.NoBody)
		r.SetBasicAuth("ann", "secret")
		resp, err := to.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		if sent != want || (err == nil) != want {
			t.Errorf("%s: sent %t, %v", scheme, sent, err)
		}
	}
	err := registryProblem(release.Chart{URL: "oci://registry.example.com/charts/shop"}, fmt.Errorf("get: %w", errNoTLS))
	if reasonOf(err) != release.ReasonChartForbidden || !strings.Contains(err.Error(), "https") {
		t.Errorf("%s: %v", reasonOf(err), err)
	}
}

// roundTripper implements http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
