package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/registry"
	"helm.sh/helm/v4/pkg/repo/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
	"sigs.k8s.io/yaml"

	"github.com/sonde-operator/sonde/internal/wire/release"
)

// sources of charts.
var sources = map[release.Source]func(context.Context, release.Chart) ([]*archive.BufferedFile, error){
	"": embedded, release.Embedded: embedded, release.OCI: fromRegistry, release.HTTP: fromRepository,
}

// Limits of a download, in bytes and time. The container may use 256 MiB of memory.
const (
	maxIndex  = 24 << 20
	maxChart  = 16 << 20
	fetchTime = time.Minute
	// maxRedirects of one request, as net/http follows.
	maxRedirects = 10
)

func init() { archive.MaxDecompressedChartSize = 64 << 20 }

// credentials for a chart's source.
type credentials struct{ username, password string }

// readCredentials returns those of the Secret that the chart names, which are mounted in a directory; nil if it names none.
func readCredentials(c release.Chart, dir string) (*credentials, error) {
	if c.SecretRef == "" {
		return nil, nil
	}
	read := map[string]string{}
	for _, key := range []string{release.UsernameKey, release.PasswordKey} {
		b, err := os.ReadFile(filepath.Join(dir, key))
		if errors.Is(err, os.ErrNotExist) {
			return nil, &problem{reason: release.ReasonChartForbidden, retry: true, text: fmt.Sprintf(
				"Secret %s, which chart.secretRef names, does not exist in the release's namespace or has no key %s: create it with the keys username and password", c.SecretRef, key)}
		}
		if err != nil {
			return nil, fmt.Errorf("read the credentials: %w", err)
		}
		read[key] = strings.TrimRight(string(b), "\r\n")
	}
	login := &credentials{username: read[release.UsernameKey], password: read[release.PasswordKey]}
	secrets.add([]any{login.password, login.username + ":" + login.password}) // servers may quote what they refuse
	return login, nil
}

// httpClient trusts the system's certificate authorities and those of the spec.
func httpClient(caBundle []byte) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // net/http documents it
	if len(caBundle) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil { // the image has none
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(caBundle) {
			return nil, &problem{reason: release.ReasonChartInvalid, text: "chart.caBundle has no certificate in PEM"}
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: fetchTime, CheckRedirect: redirect}, nil
}

// redirect follows a redirect without the credentials if it leaves their origin, and from then on. net/http would send them to other ports
// and subdomains of the host, and without TLS.
func redirect(r *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("%d redirects", maxRedirects)
	}
	for _, to := range append(via[1:len(via):len(via)], r) {
		if !isSameOrigin(via[0].URL, to.URL) {
			r.Header.Del("Authorization")
		}
	}
	return nil
}

// isSameOrigin reports whether two URLs have the same scheme, host and port.
func isSameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	defaults := map[string]string{"http": "80", "https": "443"}
	return cmp.Or(u.Port(), defaults[u.Scheme])
}

// fromRepository gets a chart from a repository of Helm charts.
func fromRepository(ctx context.Context, c release.Chart) ([]*archive.BufferedFile, error) {
	client, err := httpClient(c.CABundle)
	if err != nil {
		return nil, err
	}
	login, err := readCredentials(c, release.CredentialsPath)
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(strings.TrimSuffix(c.URL, "/") + "/")
	if err != nil {
		return nil, &problem{reason: release.ReasonChartNotFound, text: "chart.url: " + err.Error()}
	}
	b, err := get(ctx, client, base.JoinPath("index.yaml"), login, maxIndex)
	if err != nil {
		return nil, err
	}
	where, indexed, err := find(b, base, c)
	if err != nil {
		return nil, err
	}
	if !isSameOrigin(where, base) {
		login = nil // another server gets no credentials
	}
	if b, err = get(ctx, client, where, login, maxChart); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	for what, want := range map[string]string{"chart.digest": c.Digest, "the repository's index": indexed} {
		if want != "" && strings.TrimPrefix(want, "sha256:") != strings.TrimPrefix(digest, "sha256:") {
			return nil, mismatch(shown(where), digest, what, want)
		}
	}
	return unpack(b)
}

// find returns where the chart is according to the index of its repository, and its digest there.
func find(text []byte, base *url.URL, c release.Chart) (where *url.URL, digest string, err error) {
	var index repo.IndexFile
	if err := yaml.Unmarshal(text, &index); err != nil {
		return nil, "", &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf("%sindex.yaml is no index of a repository: %v", shown(base), err)}
	}
	index.SortEntries()
	found, err := index.Get(c.Name, c.Version)
	if err != nil || found == nil || found.Metadata == nil || len(found.URLs) == 0 {
		return nil, "", &problem{reason: release.ReasonChartNotFound, text: fmt.Sprintf("%s has no chart %s of version %q: correct chart.name or collector.version", shown(base), c.Name, c.Version)}
	}
	if where, err = base.Parse(found.URLs[0]); err != nil {
		return nil, "", &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf("the URL of chart %s %s in the index of %s is malformed: ask an admin of the repository to correct it", c.Name, found.Version, shown(base))}
	}
	return where, found.Digest, nil
}

func mismatch(where, digest, what, want string) error {
	return &problem{reason: release.ReasonDigestMismatch, text: fmt.Sprintf("%s has the digest %s, and %s says %s: the chart was replaced, or the digest belongs to another version", where, digest, what, want)}
}

// shown is a URL without what may be secret: the index of a repository may give signed URLs, or ones with a password.
func shown(u *url.URL) string {
	c := *u
	c.User, c.RawQuery, c.Fragment = nil, "", ""
	return c.String()
}

// get reads a file of a repository.
func get(ctx context.Context, client *http.Client, from *url.URL, login *credentials, most int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, &problem{reason: release.ReasonChartNotFound, text: "chart.url: " + err.Error()}
	}
	if login != nil {
		r.SetBasicAuth(login.username, login.password)
	}
	resp, err := client.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL
		}
		return nil, &problem{reason: release.ReasonUnavailable, retry: true, uncounted: true, text: fmt.Sprintf("get %s: %s", shown(from), withoutSecrets(err))}
	}
	defer resp.Body.Close()
	switch last := resp.Request; {
	case resp.StatusCode == http.StatusOK:
	case login != nil && last.Header.Get("Authorization") == "" && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden):
		return nil, &problem{reason: release.ReasonChartForbidden, retry: true, text: fmt.Sprintf(
			"%s redirects to %s, which gets no credentials because it is another server, and answers %s: set chart.url to the server that needs the credentials", shown(from), shown(last.URL), resp.Status)}
	default:
		return nil, refusedBy(shown(from), resp.StatusCode, resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, &problem{reason: release.ReasonUnavailable, retry: true, uncounted: true, text: fmt.Sprintf("get %s: %v", shown(from), err)}
	}
	if int64(len(b)) > most {
		return nil, &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf("%s has more than %d MiB", shown(from), most>>20)}
	}
	return b, nil
}

// refusedBy is the error of a server that answers something else than the chart.
func refusedBy(from string, code int, status string) error {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &problem{reason: release.ReasonChartForbidden, retry: true, text: fmt.Sprintf("%s answers %s: correct the Secret that chart.secretRef names", from, status)}
	case http.StatusNotFound, http.StatusGone:
		return &problem{reason: release.ReasonChartNotFound, text: fmt.Sprintf("%s answers %s: correct chart.url", from, status)}
	}
	return &problem{reason: release.ReasonUnavailable, retry: true, uncounted: true, text: fmt.Sprintf("%s answers %s", from, status)}
}

// fromRegistry gets a chart from a registry. Helm's client takes no context. So when ctx ends, the download goes on until the process ends,
// and its result is lost.
func fromRegistry(ctx context.Context, c release.Chart) ([]*archive.BufferedFile, error) {
	type result struct {
		files []*archive.BufferedFile
		err   error
	}
	done := make(chan result, 1)
	go func() {
		files, err := pull(c)
		done <- result{files, err}
	}()
	select {
	case <-ctx.Done():
		return nil, &problem{reason: release.ReasonUnavailable, retry: true, uncounted: true, text: fmt.Sprintf("get the chart from %s: %v", c.URL, ctx.Err())}
	case r := <-done:
		return r.files, r.err
	}
}

// pull gets a chart from a registry.
func pull(c release.Chart) ([]*archive.BufferedFile, error) {
	login, err := readCredentials(c, release.CredentialsPath)
	if err != nil {
		return nil, err
	}
	client, err := registryClient(c, login)
	if err != nil {
		return nil, err
	}
	ref := strings.TrimPrefix(c.URL, "oci://")
	if c.Digest != "" {
		ref += "@" + c.Digest
	} else {
		tags, err := client.Tags(ref)
		if err != nil {
			return nil, registryProblem(c, err)
		}
		tag, err := registry.GetTagMatchingVersionOrConstraint(tags, c.Version)
		if err != nil {
			return nil, &problem{reason: release.ReasonChartNotFound, text: fmt.Sprintf("%s has no version %q: correct collector.version", c.URL, c.Version)}
		}
		ref += ":" + strings.ReplaceAll(tag, "+", "_")
	}
	pulled, err := client.Pull(ref)
	if err != nil {
		return nil, registryProblem(c, err)
	}
	if c.Digest != "" && pulled.Manifest.Digest != c.Digest {
		return nil, mismatch(c.URL, pulled.Manifest.Digest, "chart.digest", c.Digest)
	}
	return unpack(pulled.Chart.Data)
}

func registryClient(c release.Chart, login *credentials) (*registry.Client, error) {
	transport, err := httpClient(c.CABundle)
	if err != nil {
		return nil, err
	}
	return registryClientOver(transport, c, login)
}

func registryClientOver(transport *http.Client, c release.Chart, login *credentials) (*registry.Client, error) {
	transport.Transport = bounded{transport.Transport}
	options := []registry.ClientOption{registry.ClientOptHTTPClient(transport), registry.ClientOptWriter(io.Discard), registry.ClientOptCredentialsFile(os.DevNull)}
	if login != nil {
		// Helm's option for a password gives it to each server that asks. A list of tags continues where a redirect has led, and the next page
		// is a request of its own, which redirect does not see.
		host, _, _ := strings.Cut(strings.TrimPrefix(c.URL, "oci://"), "/")
		options = append(options, registry.ClientOptAuthorizer(auth.Client{
			Client: transport, Credential: auth.StaticCredential(host, auth.Credential{Username: login.username, Password: login.password}),
		}))
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("make a client of the registry: %w", err)
	}
	return client, nil
}

// errNoTLS is returned by bounded.RoundTrip.
var errNoTLS = errors.New("the registry wants credentials without TLS")

// bounded cuts what a server sends: the registry's client reads all into memory. It sends no credentials without TLS, not even to the
// registry's own host. It also removes challenges that came without TLS. A forged one could name another token server, and the
// registry's client would send the credentials there.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && r.Header.Get("Authorization") != "" {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errNoTLS
	}
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // the transport's own
	}
	resp.Body = http.MaxBytesReader(nil, resp.Body, maxChart)
	if r.URL.Scheme != "https" {
		resp.Header.Del("WWW-Authenticate")
	}
	return resp, nil
}

// secretsOfURLs are the parts of URLs in a text that shown leaves out.
var secretsOfURLs = regexp.MustCompile(`(?i)(https?://)(?:[^\s"/?#]*@)?([^\s"?#]*)(?:[?#][^\s"]*)?`)

// malformedRedirect begins net/http's error of a redirect that it cannot parse. It quotes all of it.
const malformedRedirect = "failed to parse Location header"

// withoutSecrets is the text of a server's error. Like shown, it leaves out what may be secret in URLs.
func withoutSecrets(err error) string {
	said, _, malformed := strings.Cut(err.Error(), malformedRedirect)
	if malformed {
		said += "it redirects to a malformed URL"
	}
	return secretsOfURLs.ReplaceAllString(said, "$1$2")
}

// registryProblem classifies an error of a registry. The error may have a signed URL of the registry's storage, which gives the chart to anyone.
func registryProblem(c release.Chart, err error) error {
	said := withoutSecrets(err)
	if status, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return refusedBy(c.URL, status.StatusCode, said)
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &problem{reason: release.ReasonChartInvalid, text: fmt.Sprintf("%s has more than %d MiB", c.URL, maxChart>>20)}
	}
	if errors.Is(err, errNoTLS) {
		return &problem{reason: release.ReasonChartForbidden, retry: true, text: fmt.Sprintf(
			"%s: %v: ask the registry's admins to send links with https", c.URL, errNoTLS)}
	}
	if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return &problem{reason: release.ReasonChartForbidden, retry: true, text: fmt.Sprintf(
			"%s: %s: name a Secret with them in chart.secretRef, and in chart.url the server that needs them. Other servers get none", c.URL, said)}
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return &problem{reason: release.ReasonChartNotFound, text: fmt.Sprintf("%s: %s: correct chart.url, or chart.digest", c.URL, said)}
	}
	return &problem{reason: release.ReasonUnavailable, retry: true, uncounted: true, text: fmt.Sprintf("get the chart from %s: %s", c.URL, said)}
}

// unpack returns the files of a chart's archive.
func unpack(b []byte) ([]*archive.BufferedFile, error) {
	files, err := archive.LoadArchiveFiles(bytes.NewReader(b))
	if err != nil {
		return nil, &problem{reason: release.ReasonChartInvalid, text: "unpack the chart: " + err.Error()}
	}
	return files, nil
}
