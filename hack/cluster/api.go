package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const apiTimeout = 10 * time.Second

// api is a client of the API server for the few requests of `up`. Manifests are applied with the built kubectl instead.
type api struct {
	server string
	http   http.Client
}

// newAPI returns a client that trusts the authority in the file ca and presents the given client certificate, if any.
func newAPI(server, ca string, client ...tls.Certificate) (*api, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, fmt.Errorf("read the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", ca)
	}
	return &api{server: server, http: http.Client{
		Timeout: apiTimeout,
		Transport: &http.Transport{
			// No proxy: a zero Transport ignores HTTPS_PROXY.
			TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: client, MinVersion: tls.VersionTLS13},
		},
	}}, nil
}

// adminAPI returns a client with all rights, through the forward on the loopback.
func adminAPI(l layout) (*api, error) {
	admin, err := administratorCertificate(l)
	if err != nil {
		return nil, err
	}
	return newAPI("https://"+l.apiForward(), filepath.Join(l.pki(), "ca.crt"), admin)
}

// administratorCertificate reads a client certificate of the administrators' group from files; the kubeconfig contains
// another one.
func administratorCertificate(l layout) (tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(filepath.Join(l.pki(), "apiserver-kubelet.crt"), filepath.Join(l.pki(), "apiserver-kubelet.key"))
	if err != nil {
		return c, fmt.Errorf("read the administrator's certificate: %w", err)
	}
	return c, nil
}

// ready returns nil if the API server reports that it is ready.
func (a *api) ready(ctx context.Context) error {
	return a.do(ctx, http.MethodGet, "/readyz", "", nil, nil)
}

// get reads a resource into out.
func (a *api) get(ctx context.Context, path string, out any) error {
	return a.do(ctx, http.MethodGet, path, "", nil, out)
}

// patch merges a JSON patch (RFC 7396) into a resource.
func (a *api) patch(ctx context.Context, path string, patch any) error {
	b, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	return a.do(ctx, http.MethodPatch, path, "application/merge-patch+json", b, nil)
}

func (a *api) do(ctx context.Context, method, path, contentType string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, a.server+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("create a request: %w", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := a.http.Do(req)
	if err != nil {
		return fmt.Errorf("send a request to the API server: %w", err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	if res.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %.200s", method, path, res.Status, content)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return fmt.Errorf("parse the API server's answer: %w", err)
	}
	return nil
}

// kubectl returns a command that runs the built kubectl as administrator. Its caches stay with the cluster, because a
// later cluster may have the same address.
func kubectl(ctx context.Context, l layout, s state, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.Binaries, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+l.kubeconfig(), "KUBECACHEDIR="+l.kubectlCache())
	return cmd
}

// apply creates or changes the objects of the manifest called name.
func apply(ctx context.Context, l layout, s state, name string, values any) error {
	var manifest bytes.Buffer
	if err := render(&manifest, name, values); err != nil {
		return err
	}
	cmd := kubectl(ctx, l, s, "apply", "--server-side", "-f", "-")
	cmd.SysProcAttr = dieTogether()
	cmd.Stdin = &manifest
	if err := runQuietly(cmd); err != nil {
		return fmt.Errorf("apply %s: %w", name, err)
	}
	return nil
}

// notUp returns errNotUp if no complete cluster is up, and err otherwise.
func notUp(l layout) error {
	if _, err := readState(l); errors.Is(err, errNotUp) {
		return err
	}
	return nil
}
