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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// TokenHeader carries the token of a ResultAccess.
const TokenHeader = "X-Sonde-Token"

// service is the proxied name of the manager's results port: scheme, Service, port.
const service = "https:sonde-results:https"

// maxErrorBody bounds what is read of a refusal.
const maxErrorBody = 64 << 10

// Timing says how patient a Client is.
type Timing struct {
	// Settle is how long after a ResultAccess was made the manager may not know it yet.
	Settle time.Duration
	// Pause before a request is sent again; it doubles with each failure in a row, up to 16 times.
	Pause time.Duration
	// Idle is how long a connection may be silent; the manager sends something every 5 s.
	Idle time.Duration
	// Retries of a file's transfer without one byte of progress.
	Retries int
}

// DefaultTiming is what the plugin uses.
var DefaultTiming = Timing{Settle: 10 * time.Second, Pause: 500 * time.Millisecond, Idle: 30 * time.Second, Retries: 5}

// Tokens gives the token to send with a request (see Access).
type Tokens interface {
	Token(ctx context.Context) (token string, age time.Duration, err error)
	Forget(token string)
}

// Client reads the results of one capture.
type Client struct {
	rest   *rest.RESTClient
	tokens Tokens
	timing Timing
	path   []string
}

// NewClient returns a client for a capture, served by the operator in operatorNamespace.
// config is the user's; its timeout is not used, as streams last as long as captures.
func NewClient(config *rest.Config, operatorNamespace string, capture v1alpha1.Capture, tokens Tokens, timing Timing) (*Client, error) {
	k, _ := kind.CaptureOf(capture.KindName()) // there is no Capture of another
	c := rest.CopyConfig(config)
	c.Timeout = 0
	c.APIPath = "/api"
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	r, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client for the results: %w", err)
	}
	return &Client{rest: r, tokens: tokens, timing: timing, path: []string{
		"/api/v1/namespaces", operatorNamespace, "services", service, "proxy",
		"v1/namespaces", capture.GetNamespace(), k.Resource, capture.GetName(),
	}}, nil
}

// Error is a refusal, by the manager or by the API server on the way to it.
type Error struct {
	// Code is the HTTP status.
	Code int
	// Message is the refusal's own text.
	Message string
	// FromManager tells the endpoint's refusals from the API server's.
	FromManager bool
}

// Error returns the message and, for the API server's refusals, what to look at.
func (e *Error) Error() string {
	if e.FromManager {
		return e.Message
	}
	switch e.Code {
	case http.StatusNotFound:
		return e.Message + ": is Sonde installed in another namespace? Name it with --operator-namespace"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Message + ": the operator is not ready; look at its Pods in its namespace"
	}
	return e.Message
}

// get sends one request, with a new token where the old one has ended. It waits for the manager to
// learn of a token that was just made. The caller closes the response's body.
func (c *Client) get(ctx context.Context, header http.Header, path ...string) (*http.Response, error) {
	return c.query(ctx, nil, header, path...)
}

// query is get with parameters.
func (c *Client) query(ctx context.Context, parameters url.Values, header http.Header, path ...string) (*http.Response, error) {
	renewed := false
	for {
		token, age, err := c.tokens.Token(ctx)
		if err != nil {
			return nil, err
		}
		resp, err := c.send(ctx, token, parameters, header, path)
		var refused *Error
		if err == nil || !errors.As(err, &refused) || !refused.FromManager || !aboutToken(refused.Code) {
			return resp, err
		}
		switch {
		case age < c.timing.Settle:
			if err := wait(ctx, c.timing.Pause); err != nil {
				return nil, err
			}
		case !renewed && refused.Code != http.StatusNotFound:
			renewed = true
			c.tokens.Forget(token)
		default:
			return nil, err
		}
	}
}

// aboutToken reports whether a refusal can come from a manager that does not know the token, yet or any more.
func aboutToken(code int) bool {
	return code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound
}

func (c *Client) send(ctx context.Context, token string, parameters url.Values, header http.Header, path []string) (*http.Response, error) {
	target := c.rest.Get().AbsPath(slices.Concat(c.path, path)...).URL()
	target.RawQuery = parameters.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask the results endpoint: %w", err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set(TokenHeader, token)
	// Sizes and ranges are those of the file, not of something compressed on the way.
	req.Header.Set("Accept-Encoding", "identity")
	resp, err := c.rest.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the results endpoint: %w", err)
	}
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	return nil, parseError(resp.StatusCode, body)
}

// parseError tells the manager's {"error": "..."} from the API server's Status.
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

// wait returns after d, or with an error when ctx ends before.
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
