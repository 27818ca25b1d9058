package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// TokenHeader carries the token of a ResultAccess, and AccessHeader its UID: a copy of its hash is not mistaken for it.
const (
	TokenHeader  = "X-Sonde-Token"
	AccessHeader = "X-Sonde-Access"
)

// service is the proxied name of the manager's results port: scheme, Service, port.
const service = "https:sonde-results:https"

// maxErrorBody limits how much of an error response is read, in bytes.
const maxErrorBody = 64 << 10

// Timing has the timeouts and retries of a Client.
type Timing struct {
	// Propagation is how long the manager may take to observe a new ResultAccess.
	Propagation time.Duration
	// Pause before a retry. It doubles with each consecutive failure, up to 16 times Pause.
	Pause time.Duration
	// Idle is how long a connection may send nothing. The manager sends something every 5 s.
	Idle time.Duration
	// Retries of a download that makes no progress.
	Retries int
	// Busy is how long a download waits for a place, if it makes no progress meanwhile.
	Busy time.Duration
}

// DefaultTiming is the timing of the plugin.
var DefaultTiming = Timing{Propagation: 10 * time.Second, Pause: 500 * time.Millisecond, Idle: 30 * time.Second, Retries: 5, Busy: 10 * time.Minute}

// Token of a ResultAccess.
type Token struct {
	Text string
	// Access is the UID of the ResultAccess.
	Access types.UID
	Age    time.Duration
}

// Tokens provides the token of a request (see Access).
type Tokens interface {
	Token(ctx context.Context) (Token, error)
	Invalidate(token string)
}

// Client reads the results of one capture.
type Client struct {
	rest   *rest.RESTClient
	live   *http.Client // of growing files
	tokens Tokens
	timing Timing
	path   []string

	// OnBusy, if not nil, is called when a download begins to wait for a place, with the reason. Set it before the first
	// request.
	OnBusy func(reason string)
}

// NewClient returns a client for the results of a capture, which the operator in operatorNamespace serves. It ignores
// the timeout of config, because streams last as long as captures. pods is how many growing files are expected at a time, or 0.
func NewClient(config *rest.Config, operatorNamespace string, capture v1alpha1.Capture, tokens Tokens, timing Timing, pods int) (*Client, error) {
	k, _ := kind.CaptureOf(capture.KindName()) // there is no Capture of another
	c := rest.CopyConfig(config)
	c.Timeout = 0
	c.APIPath = "/api"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for the results: %w", err)
	}
	c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return withWindow(rt, liveWindow(pods)) })
	live, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("create a client for growing files: %w", err)
	}
	r.Client = withoutRedirects(r.Client)
	return &Client{rest: r, live: withoutRedirects(live), tokens: tokens, timing: timing, path: []string{
		"/api/v1/namespaces", operatorNamespace, "services", service, "proxy",
		"v1/namespaces", capture.GetNamespace(), k.Resource, capture.GetName(),
	}}, nil
}

// withoutRedirects returns a client that follows no redirect: it would send the user's credentials to wherever that leads.
func withoutRedirects(c *http.Client) *http.Client {
	own := *c
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &own
}

// Error is an error response of the manager, or of the API server that proxies to it.
type Error struct {
	// Code is the HTTP status.
	Code int
	// Message of the response.
	Message string
	// FromManager says that the manager sent the response, and not the API server.
	FromManager bool
	// RetryAfter is how long the server asks the client to wait, or 0. It has too much to do, and nothing is wrong.
	RetryAfter time.Duration
}

// Error returns the message and, if the API server sent it, what to check.
func (e *Error) Error() string {
	if e.FromManager {
		return e.Message
	}
	switch e.Code {
	case http.StatusNotFound:
		return e.Message + ": if Sonde is installed in another namespace, name it with --operator-namespace"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Message + ": the operator is not ready; check the Pods in its namespace"
	}
	return e.Message
}

// get sends a request. It renews a token that has expired, and waits until the manager has observed a new one. The
// caller closes the body of the response.
func (c *Client) get(ctx context.Context, header http.Header, path ...string) (*http.Response, error) {
	return c.query(ctx, c.rest.Client, nil, header, path...)
}

// query is get by an HTTP client, with query parameters.
func (c *Client) query(ctx context.Context, by *http.Client, parameters url.Values, header http.Header, path ...string) (*http.Response, error) {
	renewed := false
	for {
		token, err := c.tokens.Token(ctx)
		if err != nil {
			return nil, err
		}
		resp, err := c.send(ctx, by, token, parameters, header, path)
		var refused *Error
		if err == nil || !errors.As(err, &refused) || !refused.FromManager || !tokenRefused(refused.Code) {
			return resp, err
		}
		switch {
		case token.Age < c.timing.Propagation:
			if err := wait(ctx, c.timing.Pause); err != nil {
				return nil, err
			}
		case !renewed && refused.Code != http.StatusNotFound:
			renewed = true
			c.tokens.Invalidate(token.Text)
		default:
			return nil, err
		}
	}
}

// tokenRefused reports whether the manager may have refused the token because it is too new or expired.
func tokenRefused(code int) bool {
	return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound
}

func (c *Client) send(ctx context.Context, by *http.Client, token Token, parameters url.Values, header http.Header, path []string) (*http.Response, error) {
	target := c.rest.Get().AbsPath(slices.Concat(c.path, path)...).URL()
	target.RawQuery = parameters.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("send a request to the results endpoint: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set(TokenHeader, token.Text)
	req.Header.Set(AccessHeader, string(token.Access))
	// Without compression, sizes and ranges refer to the file.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := by.Do(req)
	if err != nil {
		return nil, fmt.Errorf("send a request to the results endpoint: %w", err)
	}
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	refused := parseError(resp.StatusCode, body)
	refused.RetryAfter = retryAfter(resp.Header)
	return nil, refused
}

// maxRetryAfter bounds the wait that a server asks for.
const maxRetryAfter = time.Minute

// retryAfter reads the header Retry-After, in seconds.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.ParseUint(header.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// parseError reads the manager's {"error": "..."} or the API server's Status.
func parseError(code int, body []byte) *Error {
	var fromManager struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &fromManager) == nil && fromManager.Error != "" {
		return &Error{Code: code, Message: fromManager.Error, FromManager: true}
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return &Error{Code: code, Message: status.Message}
	}
	return &Error{Code: code, Message: fmt.Sprintf("the results endpoint answered %d %s", code, http.StatusText(code))}
}

// wait returns after d, or with an error if ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
