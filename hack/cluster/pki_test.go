package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func makePKI(t *testing.T, nodes int) layout {
	t.Helper()
	l := layout{base: t.TempDir()}
	if err := l.makeRun(); err != nil {
		t.Fatal(err)
	}
	if err := writePKI(l, nodes); err != nil {
		t.Fatal(err)
	}
	return l
}

func loadCertificate(t *testing.T, l layout, file string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(l.pki(), file+".crt"), filepath.Join(l.pki(), file+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func TestCertificates(t *testing.T) {
	l := makePKI(t, 2)
	for file, tc := range map[string]struct {
		authority  string
		wantUser   string
		wantGroups []string
		host       string
	}{
		"apiserver":         {authority: "ca.crt", wantUser: "kube-apiserver", host: controlPlaneIP},
		"kubelet-server-n2": {authority: "ca.crt", wantUser: "system:node:n2", host: "10.99.0.22"},
		"apiserver-kubelet": {authority: "ca.crt", wantUser: "kube-apiserver-kubelet-client", wantGroups: []string{"system:masters"}},
		"front-proxy":       {authority: "front-ca.crt", wantUser: "front-proxy-client"},
	} {
		t.Run(file, func(t *testing.T) {
			pem, err := os.ReadFile(filepath.Join(l.pki(), tc.authority))
			if err != nil {
				t.Fatal(err)
			}
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(pem)
			cert := loadCertificate(t, l, file)
			_, err = cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: tc.host, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if err != nil {
				t.Error(err)
			}
			if cert.Subject.CommonName != tc.wantUser || !cmp.Equal(cert.Subject.Organization, tc.wantGroups) {
				t.Errorf("names %q in %q, want %q in %q", cert.Subject.CommonName, cert.Subject.Organization, tc.wantUser, tc.wantGroups)
			}
		})
	}
}

func TestKubeconfigOfEachComponent(t *testing.T) {
	l := makePKI(t, 3)
	for file := range identities(3) {
		info, err := os.Stat(filepath.Join(l.pki(), file+".kubeconfig"))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}

// TestAPI asks a server that has the API server's certificate and demands the
// administrator's.
func TestAPI(t *testing.T) {
	l := makePKI(t, 1)
	pair, err := tls.LoadX509KeyPair(filepath.Join(l.pki(), "apiserver.crt"), filepath.Join(l.pki(), "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/api/v1/nodes/n1" {
			_, _ = w.Write([]byte(`{"status":{"conditions":[{"type":"Ready","status":"False","message":"no network yet"}]}}`))
		}
		if r.URL.Path == "/api/v1/nodes/n3" {
			_, _ = w.Write([]byte(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-02T03:04:05Z"}]}}`))
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)

	ca := filepath.Join(l.pki(), "ca.crt")
	admin, err := administratorCertificate(l)
	if err != nil {
		t.Fatal(err)
	}
	client, err := newAPI(server.URL, ca, admin)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.ready(t.Context()); err != nil {
		t.Errorf("as administrator: %v", err)
	}
	checkErr(t, nodeReady(t.Context(), client, "/api/v1/nodes/n1", time.Time{}), "no network yet")
	checkErr(t, nodeReady(t.Context(), client, "/api/v1/nodes/n2", time.Time{}), "parse the API server's answer: unexpected end of JSON input")
	heartbeat := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	checkErr(t, nodeReady(t.Context(), client, "/api/v1/nodes/n3", heartbeat), "")
	checkErr(t, nodeReady(t.Context(), client, "/api/v1/nodes/n3", heartbeat.Add(time.Second)), "it has not reported since 2026-01-02 03:04:05 +0000 UTC")
	anonymous, err := newAPI(server.URL, ca)
	if err != nil {
		t.Fatal(err)
	}
	checkErr(t, anonymous.ready(t.Context()), "GET /readyz: 401 Unauthorized: who are you\n")
}
