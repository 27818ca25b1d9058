package keeperapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Timeouts of the client. A keeper answers from memory or from a local file.
const (
	dialTimeout   = 5 * time.Second
	headerTimeout = 10 * time.Second
	callTimeout   = 15 * time.Second      // a whole call, except streams
	readTimeout   = 4 * HeartbeatInterval // silence of a stream
	idleTimeout   = 30 * time.Second      // of an idle connection
)

// Client talks to the keepers of one capture, which all have the same key pair. It is safe for concurrent use. It keeps few
// idle connections, which Close closes.
type Client struct {
	// files is for whole and growing files, short for all other answers.
	files, short *http.Client
}

// NewClient returns a client that accepts only the keeper's certificate and shows the manager's. All are PEM, as in
// the Secret of a capture (captureconfig.SecretServerCert, SecretClientCert, SecretClientKey).
func NewClient(serverCertPEM, clientCertPEM, clientKeyPEM []byte) (*Client, error) {
	config, err := clientTLS(serverCertPEM, clientCertPEM, clientKeyPEM)
	if err != nil {
		return nil, err
	}
	return newClient(config), nil
}

func newClient(config *tls.Config) *Client {
	return &Client{files: newHTTP(config, readBuffer), short: newHTTP(config, shortReadBuffer)}
}

// newHTTP returns a client whose connections have a buffer of some bytes for what a keeper sends.
func newHTTP(config *tls.Config, buffer int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			// No Proxy: a Pod's address is not reachable through the proxy of the environment.
			DialContext:            dialWith(buffer),
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    dialTimeout,
			ResponseHeaderTimeout:  headerTimeout,
			MaxResponseHeaderBytes: 16 << 10,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        idleTimeout,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Read buffers of a connection in bytes; Linux doubles them. Without one, the kernel keeps up to 6 MiB (tcp_rmem) or more of a file that a
// user downloads slowly. With cgroup v2 that counts for the manager's container. An account has account.MaxBytes, and the manager watches
// hundreds of keepers.
const readBuffer, shortReadBuffer = 64 << 10, 16 << 10

func dialWith(buffer int) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
		if err != nil {
			return nil, fmt.Errorf("connect to a keeper: %w", err)
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(buffer) // an error means that it has ended
		}
		return conn, nil
	}
}

// Close closes the idle connections. Running calls continue, and the client can be used again.
func (c *Client) Close() {
	c.files.CloseIdleConnections()
	c.short.CloseIdleConnections()
}

// Progress returns the current account of the keeper at addr (host:port).
func (c *Client) Progress(ctx context.Context, addr string) (account.Account, error) {
	body, err := c.call(ctx, http.MethodGet, addr, PathProgress, nil)
	if err != nil {
		return account.Account{}, fmt.Errorf("get progress from %s: %w", addr, err)
	}
	a, err := account.Parse(bytes.TrimSpace(body))
	if err != nil {
		return account.Account{}, fmt.Errorf("get progress from %s: %w", addr, err)
	}
	return a, nil
}

// Watch calls fn with the current account and with each change. It returns nil after an account of state done, fn's error,
// ctx's error, or ErrStreamCut, also after 20 s of silence.
func (c *Client) Watch(ctx context.Context, addr string, fn func(account.Account) error) error {
	resp, err := stream(ctx, c.short, addr, PathProgress, url.Values{QueryWatch: {"1"}}, nil)
	if err != nil {
		return fmt.Errorf("watch progress at %s: %w", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("watch progress at %s: %w", addr, statusError(resp))
	}
	err = ReadAccounts(ctx, resp.Body, fn)
	if errors.Is(err, ErrStreamCut) && ctx.Err() != nil {
		// The caller has cut the stream.
		return fmt.Errorf("watch progress at %s: %w", addr, ctx.Err())
	}
	return err
}

// File opens the file name of the result. rangeHeader is the value of a Range header, or empty for the whole file.
// The answer is 200 or 206, with the keeper's headers. Any other is a *StatusError (404: no such file; 416: the range
// is outside of it). The caller closes the body. Reading from it fails after 20 s of silence.
func (c *Client) File(ctx context.Context, addr, name, rangeHeader string) (*http.Response, error) {
	header := http.Header{}
	if rangeHeader != "" {
		header.Set("Range", rangeHeader)
	}
	resp, err := stream(ctx, c.files, addr, PathFiles+url.PathEscape(name), nil, header)
	if err != nil {
		return nil, fmt.Errorf("get file %q from %s: %w", name, addr, err)
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		defer resp.Body.Close()
		return nil, fmt.Errorf("get file %q from %s: %w", name, addr, statusError(resp))
	}
	return resp, nil
}

// Live opens the lines or blocks of the file name from a byte on, until the capture has ended (PathLive). An answer other than 200 is
// a *StatusError (404: no such file). The caller closes the body. Reading from it fails after 20 s of silence.
func (c *Client) Live(ctx context.Context, addr, name string, q LiveQuery) (*http.Response, error) {
	resp, err := stream(ctx, c.files, addr, PathLive+url.PathEscape(name), q.Values(), nil)
	if err != nil {
		return nil, fmt.Errorf("follow file %q at %s: %w", name, addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, fmt.Errorf("follow file %q at %s: %w", name, addr, statusError(resp))
	}
	return resp, nil
}

// Stop requests the probe beside the keeper to stop; reason is one that StopRequest lists. The first reason wins. A repeated
// request, and one after the end, succeeds.
func (c *Client) Stop(ctx context.Context, addr, reason string) error {
	body, err := json.Marshal(StopRequest{Reason: reason})
	if err != nil {
		return fmt.Errorf("stop the probe at %s: %w", addr, err)
	}
	if _, err := c.call(ctx, http.MethodPost, addr, PathStop, body); err != nil {
		return fmt.Errorf("stop the probe at %s: %w", addr, err)
	}
	return nil
}

// Recount has the keeper of a dead probe count the files, and returns the probe's account with those counts.
func (c *Client) Recount(ctx context.Context, addr string) (account.Account, error) {
	body, err := c.call(ctx, http.MethodPost, addr, PathRecount, nil)
	if err != nil {
		return account.Account{}, fmt.Errorf("count the files at %s: %w", addr, err)
	}
	a, err := account.Parse(bytes.TrimSpace(body))
	if err != nil {
		return account.Account{}, fmt.Errorf("count the files at %s: %w", addr, err)
	}
	return a, nil
}

// Release ends the keeper when the result is not needed any more. The files are deleted with its Pod.
func (c *Client) Release(ctx context.Context, addr string) error {
	if _, err := c.call(ctx, http.MethodPost, addr, PathRelease, nil); err != nil {
		return fmt.Errorf("release the keeper at %s: %w", addr, err)
	}
	return nil
}

// call makes one short exchange and returns the body of a 2xx answer.
func (c *Client) call(ctx context.Context, method, addr, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := do(ctx, c.short, method, addr, path, nil, nil, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return nil, statusError(resp)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, account.MaxBytes+2))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return b, nil
}

// stream starts a long GET. Reading its body fails when nothing arrives for readTimeout.
func stream(ctx context.Context, by *http.Client, addr, path string, query url.Values, header http.Header) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := do(ctx, by, http.MethodGet, addr, path, query, header, nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	resp.Body = newTimeoutBody(ctx, cancel, resp.Body, readTimeout)
	return resp, nil
}

func do(ctx context.Context, by *http.Client, method, addr, path string, query url.Values, header http.Header, body []byte) (*http.Response, error) {
	target := "https://" + addr + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if header != nil {
		req.Header = header
	}
	SetVersion(req.Header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := by.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the callers add the address
		}
		return nil, err
	}
	if err := CheckVersion(resp.Header); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// statusError makes an error of an unexpected answer.
func statusError(resp *http.Response) error {
	e := &StatusError{Code: resp.StatusCode, Message: "no message"}
	b, err := io.ReadAll(io.LimitReader(resp.Body, MaxErrorBytes))
	if err != nil {
		return e
	}
	var body ErrorBody
	if json.Unmarshal(b, &body) == nil && body.Error != "" {
		e.Message = text.OneLine(body.Error, MaxErrorBytes) // a taken-over keeper may send escapes for a terminal
	}
	return e
}
