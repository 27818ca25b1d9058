package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ociregistry "github.com/google/go-containerregistry/pkg/registry"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// pack makes a chart's archive of a version.
func pack(t *testing.T, version string) (content []byte, digest string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range map[string]string{"shop/Chart.yaml": "apiVersion: v2\nname: shop\nversion: " + version + "\n"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return b.Bytes(), "sha256:" + hex.EncodeToString(sum[:])
}

// A server may quote the credentials that it refuses.
func TestCredentialsAreHidden(t *testing.T) {
	dir := t.TempDir()
	for key, text := range map[string]string{release.UsernameKey: "robot", release.PasswordKey: "hunter-of-charts\n"} {
		if err := os.WriteFile(filepath.Join(dir, key), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readCredentials(release.Chart{SecretRef: "registry"}, dir); err != nil {
		t.Fatal(err)
	}
	sent := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:hunter-of-charts"))
	if got := secrets.hide("401 " + sent + " or hunter-of-charts"); got != "401 Basic *** or ***" {
		t.Errorf("the message is %q", got)
	}
}

// TestRepository gets charts from a repository over TLS with a certificate of its own.
func TestRepository(t *testing.T) {
	old, oldDigest := pack(t, "1.2.0")
	now, _ := pack(t, "1.3.0")
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		switch r.URL.Path {
		case "/charts/index.yaml":
			fmt.Fprintf(w, `{apiVersion: v1, entries: {shop: [
				{apiVersion: v2, name: shop, version: 1.2.0, urls: [shop-1.2.0.tgz], digest: %q}, {apiVersion: v2, name: shop, version: 1.3.0, urls: [shop-1.3.0.tgz]}],
				forged: [{apiVersion: v2, name: forged, version: 1.0.0, urls: [shop-1.2.0.tgz], digest: "00"}]}}`, strings.TrimPrefix(oldDigest, "sha256:"))
		case "/charts/shop-1.2.0.tgz":
			_, _ = w.Write(old)
		case "/charts/shop-1.3.0.tgz":
			_, _ = w.Write(now)
		}
	}))
	t.Cleanup(server.Close)
	ca := certificateOf(server)
	for name, tc := range map[string]struct {
		chart   release.Chart
		status  int
		version string
		reason  string
		text    string
	}{
		"the newest":           {version: "1.3.0"},
		"a version":            {chart: release.Chart{Version: "1.2.0"}, version: "1.2.0"},
		"a range":              {chart: release.Chart{Version: "<1.3"}, version: "1.2.0"},
		"with its digest":      {chart: release.Chart{Version: "1.2.0", Digest: oldDigest}, version: "1.2.0"},
		"with another digest":  {chart: release.Chart{Version: "1.3.0", Digest: oldDigest}, reason: release.ReasonDigestMismatch, text: "chart.digest says " + oldDigest},
		"against the index":    {chart: release.Chart{Name: "forged"}, reason: release.ReasonDigestMismatch, text: "the repository's index"},
		"another version":      {chart: release.Chart{Version: "9"}, reason: release.ReasonChartNotFound, text: "no chart shop of version"},
		"another name":         {chart: release.Chart{Name: "web"}, reason: release.ReasonChartNotFound, text: "no chart web"},
		"no certificate":       {chart: release.Chart{CABundle: []byte("none")}, reason: release.ReasonUnavailable, text: "certificate"},
		"not in PEM":           {chart: release.Chart{CABundle: []byte("x")}, reason: release.ReasonChartInvalid, text: "no certificate in PEM"},
		"unauthorized":         {status: http.StatusUnauthorized, reason: release.ReasonChartForbidden, text: "chart.secretRef"},
		"not there":            {status: http.StatusNotFound, reason: release.ReasonChartNotFound, text: "404"},
		"the server is broken": {status: http.StatusBadGateway, reason: release.ReasonUnavailable, text: "502"},
	} {
		t.Run(name, func(t *testing.T) {
			status = http.StatusOK
			if tc.status != 0 {
				status = tc.status
			}
			c := tc.chart
			c.URL = server.URL + "/charts/"
			if c.Name == "" {
				c.Name = "shop"
			}
			switch string(c.CABundle) {
			case "":
				c.CABundle = ca
			case "none":
				c.CABundle = nil
			}
			files, err := fromRepository(t.Context(), c)
			if reasonOf(err) != tc.reason || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("%s: %v; want %s with %q", reasonOf(err), err, tc.reason, tc.text)
			}
			if err == nil && !strings.Contains(string(files[0].Data), "version: "+tc.version) {
				t.Errorf("got %s, want version %s", files[0].Data, tc.version)
			}
		})
	}
}

// TestRegistry gets charts from a registry over TLS, as Helm has pushed them.
func TestRegistry(t *testing.T) {
	server := httptest.NewTLSServer(ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	ca := certificateOf(server)
	host := strings.TrimPrefix(server.URL, "https://")
	client, err := registryClient(release.Chart{CABundle: ca}, nil)
	if err != nil {
		t.Fatal(err)
	}
	digests := map[string]string{}
	for _, version := range []string{"1.2.0", "1.3.0"} {
		content, _ := pack(t, version)
		pushed, err := client.Push(content, host+"/charts/shop:"+version)
		if err != nil {
			t.Fatal(err)
		}
		digests[version] = pushed.Manifest.Digest
	}
	for name, tc := range map[string]struct {
		chart   release.Chart
		version string
		reason  string
		text    string
	}{
		"the newest":      {version: "1.3.0"},
		"a version":       {chart: release.Chart{Version: "1.2.0"}, version: "1.2.0"},
		"a range":         {chart: release.Chart{Version: "~1.2"}, version: "1.2.0"},
		"a digest":        {chart: release.Chart{Digest: digests["1.2.0"]}, version: "1.2.0"},
		"another digest":  {chart: release.Chart{Digest: "sha256:" + strings.Repeat("0", 64)}, reason: release.ReasonChartNotFound, text: "chart.digest"},
		"another version": {chart: release.Chart{Version: "9.0.0"}, reason: release.ReasonChartNotFound, text: "has no version"},
		"another chart":   {chart: release.Chart{URL: "oci://" + host + "/charts/web"}, reason: release.ReasonChartNotFound, text: "chart.url"},
		"no certificate":  {chart: release.Chart{CABundle: []byte("none")}, reason: release.ReasonUnavailable, text: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.chart
			if c.URL == "" {
				c.URL = "oci://" + host + "/charts/shop"
			}
			if string(c.CABundle) == "none" {
				c.CABundle = nil
			} else {
				c.CABundle = ca
			}
			files, err := fromRegistry(t.Context(), c)
			if reasonOf(err) != tc.reason || err != nil && !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("%s: %v; want %s with %q", reasonOf(err), err, tc.reason, tc.text)
			}
			if err == nil && !strings.Contains(string(files[0].Data), "version: "+tc.version) {
				t.Errorf("got %s, want version %s", files[0].Data, tc.version)
			}
		})
	}
}

// TestSignedURLs: a registry redirects to signed URLs of its storage. No message says more of them than their place.
func TestSignedURLs(t *testing.T) {
	inner := ociregistry.New(ociregistry.Logger(log.New(io.Discard, "", 0)))
	var storage string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/stored":
			w.WriteHeader(http.StatusForbidden)
		case storage != "" && r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/"):
			http.Redirect(w, r, storage+"?signature=s3cret", http.StatusTemporaryRedirect)
		default:
			inner.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	c := chartAt(server)
	client, err := registryClient(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	content, _ := pack(t, "1.2.0")
	if _, err := client.Push(content, strings.TrimPrefix(c.URL, "oci://")+":1.2.0"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ storage, want string }{
		"refused":     {server.URL + "/stored", server.URL + "/stored"},
		"not reached": {"https://user:s3cret@127.0.0.1:1/stored", "https://127.0.0.1:1/stored"},
		"malformed":   {"//user:s3%cret@127.0.0.1/stored", "redirects to a malformed URL"},
	} {
		t.Run(name, func(t *testing.T) {
			storage = tc.storage
			_, err := fromRegistry(t.Context(), c)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "signature") {
				t.Errorf("got %v, want an error with %s and without the signature", err, tc.want)
			}
		})
	}
}

// TestRegistryThatHangs: when its Pod has to end, the releaser reports that, although the registry does not answer.
func TestRegistryThatHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		cancel()
		<-end
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(end) })
	_, err := fromRegistry(ctx, chartAt(server))
	if p := classify(err); !p.retry || !p.uncounted || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("retry %t, uncounted %t: %v", p.retry, p.uncounted, err)
	}
}
