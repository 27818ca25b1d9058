package intercept

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// upgradeTimeout is how long the API server may take to answer the upgrade.
const upgradeTimeout = 15 * time.Second

// maxErrorBody limits how much of an error response is read, in bytes.
const maxErrorBody = 16 << 10

// Dialer connects to Stowaway through the API server, with the rights of the kubeconfig.
type Dialer struct {
	client *http.Client
	url    *url.URL
}

// NewDialer returns a Dialer to the Stowaway in a namespace.
func NewDialer(config *rest.Config, namespace string) (*Dialer, error) {
	c := rest.CopyConfig(config)
	c.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	c.Timeout = 0                       // it would wrap the connection
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	// A redirect comes from Stowaway, and client would send the user's credentials to wherever it leads.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &Dialer{client: client, url: base.JoinPath(
		"api/v1/namespaces", namespace, "services", "http:"+tunnel.Name+":"+tunnel.ClientPortName, "proxy", tunnel.PathClient)}, nil
}

// ProxyError is an answer of the API server, or of Stowaway, other than an upgrade.
type ProxyError struct {
	// Code is the HTTP status.
	Code    int
	Message string
}

// Denied reports that the API server does not know the user, or that the user lacks the right.
func (e *ProxyError) Denied() bool {
	return e.Code == http.StatusForbidden || e.Code == http.StatusUnauthorized
}

// Error says what to do, where that is known.
func (e *ProxyError) Error() string {
	switch e.Code {
	case http.StatusForbidden, http.StatusUnauthorized:
		return e.Message + "\nThe tunnel goes through services/proxy. Ask a cluster admin for the RoleBinding sonde-results in the namespace of Sonde, which every authenticated user has by default"
	case http.StatusNotFound:
		return e.Message + ": the cluster's end of the tunnel is not there; check Deployment " + tunnel.Name + " in the namespace of Sonde"
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return e.Message + ": the cluster's end of the tunnel is not ready"
	}
	return fmt.Sprintf("the tunnel is refused with status %d: %s", e.Code, e.Message)
}

// Dial returns a connection that was authenticated on both sides.
func (d *Dialer) Dial(ctx context.Context, identity *tunnel.Identity, stowaway tunnel.PublicKey) (net.Conn, error) {
	raw, err := d.upgrade(ctx)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(tunnel.Batch(raw), identity.ClientTLS(stowaway))
	if err := tunnel.Handshake(ctx, conn); err != nil {
		return nil, err
	}
	return conn, nil
}

func (d *Dialer) upgrade(ctx context.Context) (net.Conn, error) {
	c := &upgraded{}
	// The context ends the request, not the connection that it becomes.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(upgradeTimeout, cancel)
	defer late.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { c.setConn(i.Conn) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("connect to the tunnel: %w", err)
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", tunnel.Protocol)
	response, err := d.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("connect to the tunnel: %w", err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		defer response.Body.Close()
		return nil, proxyError(response)
	}
	body, ok := response.Body.(io.ReadWriteCloser)
	if !ok {
		_ = response.Body.Close()
		return nil, errors.New("connect to the tunnel: the answer is no upgrade")
	}
	c.ReadWriteCloser = body
	return c, nil
}

func proxyError(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	e := &ProxyError{Code: response.StatusCode, Message: string(text)}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		e.Message = status.Message
	}
	if e.Message == "" {
		e.Message = response.Status
	}
	return e
}

// upgraded is the connection of an upgraded request. Deadlines are those of the connection to the API server.
type upgraded struct {
	io.ReadWriteCloser
	mu   sync.Mutex
	conn net.Conn
}

func (u *upgraded) setConn(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.conn = c
}

// Close implements net.Conn. It does not wait for the API server.
func (u *upgraded) Close() error {
	_ = tunnel.CloseNow(u.conn) // the next line returns the error
	return u.ReadWriteCloser.Close()
}

func (u *upgraded) LocalAddr() net.Addr                { return u.conn.LocalAddr() }
func (u *upgraded) RemoteAddr() net.Addr               { return u.conn.RemoteAddr() }
func (u *upgraded) SetDeadline(t time.Time) error      { return u.conn.SetDeadline(t) }
func (u *upgraded) SetReadDeadline(t time.Time) error  { return u.conn.SetReadDeadline(t) }
func (u *upgraded) SetWriteDeadline(t time.Time) error { return u.conn.SetWriteDeadline(t) }
