package intercept

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/client-go/rest"

	"github.com/sonde-operator/sonde/agents/carrier"
	"github.com/sonde-operator/sonde/agents/stowaway"
	"github.com/sonde-operator/sonde/internal/cli/intercept"
	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// Addresses in the two namespaces. Clients reach Stowaway and the API server over the veth pair.
const (
	clientPort    = "8443"
	peerPort      = "8444"
	apiServerPort = "6443"
	sourcePort    = "9000"

	stowawayURL = "http://" + host.TargetIP + ":" + clientPort

	podPort    = 8080
	podAddress = "127.0.0.1:8080" // its connections go to the carrier
	appAddress = "127.0.0.1:8081"
	splicer    = "127.0.0.1:8082"
)

// settings of a role, as JSON on its standard input.
type settings struct {
	Identity []byte           `json:"identity,omitempty"` // PEM
	Peer     tunnel.PublicKey `json:"peer,omitempty"`     // key of Stowaway, or for Stowaway the manager's
	Address  string           `json:"address,omitempty"`  // to connect to: the client's URL, or the sink's host:port
	Bytes    int64            `json:"bytes,omitempty"`    // that the source sends
	Requests int              `json:"requests,omitempty"` // that the caller sends by each way
	Clients  int              `json:"clients,omitempty"`  // of the crowd
}

// Roles are the roles of this package. They print ready when they listen, and end when bench kills them.
var Roles = map[string]func(args []string) error{
	"role-intercept-stowaway":  role(runStowaway),
	"role-intercept-carrier":   role(runCarrier),
	"role-intercept-client":    role(runClient),
	"role-intercept-apiserver": role(runAPIServer),
	"role-intercept-source":    role(runSource),
	"role-intercept-sink":      role(runSink),
	"role-intercept-app":       role(runApp),
	"role-intercept-splicer":   role(runSplicer),
	"role-intercept-caller":    role(runCaller),
	"role-intercept-crowd":     role(runCrowd),
}

func role(run func(context.Context, *settings) error) func([]string) error {
	return func([]string) error {
		runtime.UnlockOSThread() // all threads are in the namespace; a goroutine with a thread of its own is slow
		var s settings
		if err := json.NewDecoder(os.Stdin).Decode(&s); err != nil {
			return fmt.Errorf("read settings: %w", err)
		}
		return run(context.Background(), &s)
	}
}

func unconfined() error { return nil }

// listen listens for plain TCP. Go's default, MPTCP, is not what the opener hands to the carrier.
func listen(ctx context.Context, address string) (net.Listener, error) {
	var l net.ListenConfig
	l.SetMultipathTCP(false)
	return l.Listen(ctx, "tcp4", address)
}

func runStowaway(ctx context.Context, s *settings) error {
	id, err := tunnel.ParseIdentity(s.Identity)
	if err != nil {
		return err
	}
	return stowaway.Run(ctx, &stowaway.Config{
		Identity: id, ManagerKey: s.Peer, Confined: unconfined, Log: slog.New(slog.DiscardHandler),
		ListenClients: func(ctx context.Context) (net.Listener, error) { return listen(ctx, ":"+clientPort) },
		ListenPeers:   func(ctx context.Context) (net.Listener, error) { return listen(ctx, ":"+peerPort) },
		Restrict: func() (restriction.InForce, error) { // its ports are open
			fmt.Println(host.Ready)
			return restriction.InForce{}, nil
		},
	})
}

// pod is the target as the opener would hand it over: every connection to podAddress is redirected already.
type pod struct{ listener net.Listener }

func (p pod) Listeners() []net.Listener { return []net.Listener{p.listener} }
func (p pod) Done() <-chan struct{}     { return nil }

// Steer is called when the route and its client are there.
func (p pod) Steer(_ context.Context, _ uint16, on bool) error {
	if on {
		fmt.Println(host.Ready)
	}
	return nil
}

func (p pod) Listens(context.Context, uint16) (bool, error) { return true, nil }

func (p pod) Dial(ctx context.Context, _ netip.AddrPort) (*net.TCPConn, error) {
	return (&net.Dialer{}).DialTCP(ctx, "tcp4", netip.AddrPort{}, netip.MustParseAddrPort(appAddress))
}

func runCarrier(ctx context.Context, s *settings) error {
	id, err := tunnel.ParseIdentity(s.Identity)
	if err != nil {
		return err
	}
	return carrier.Run(ctx, &carrier.Config{
		Stowaway: net.JoinHostPort("127.0.0.1", peerPort), StowawayKey: s.Peer, Identity: id, PodUID: podUID, Pod: podName,
		Connections: carrier.DefaultConnections, IdleAfter: carrier.DefaultIdle, Confined: unconfined, Log: slog.New(slog.DiscardHandler),
		Connect: func(ctx context.Context) (carrier.Pod, error) {
			l, err := listen(ctx, podAddress)
			return pod{l}, err
		},
		Restrict: func(string) (restriction.InForce, error) { return restriction.InForce{}, nil },
	})
}

// newTunnel returns the client's tunnel to a URL: of an API server by HTTPS, or of Stowaway itself by HTTP.
func newTunnel(id *tunnel.Identity, stowaway tunnel.PublicKey, address string, h http.Handler, onChange func(error)) (*intercept.Tunnel, error) {
	config := &rest.Config{Host: address}
	config.Insecure = true // the API server's certificate means nothing; the handshake inside compares keys
	if strings.HasPrefix(address, "http://") {
		config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return directly{rt} }
	}
	dialer, err := intercept.NewDialer(config, "sonde-system")
	if err != nil {
		return nil, err
	}
	return &intercept.Tunnel{
		Identity: id, Handler: h, OnChange: onChange,
		Key:  func() tunnel.PublicKey { return stowaway },
		Dial: func(ctx context.Context, key tunnel.PublicKey) (net.Conn, error) { return dialer.Dial(ctx, id, key) },
	}, nil
}

// directly asks Stowaway itself, which has no path of services/proxy.
type directly struct{ http.RoundTripper }

func (d directly) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Path = tunnel.PathClient
	return d.RoundTripper.RoundTrip(r)
}

func runClient(ctx context.Context, s *settings) error {
	id, err := tunnel.ParseIdentity(s.Identity)
	if err != nil {
		return err
	}
	var traffic intercept.Traffic
	local := &intercept.Local{
		Route: routeID, Address: net.JoinHostPort("127.0.0.1", sourcePort), OnReport: func(tunnel.Report) {},
		OnDial: func(err error) {
			if err != nil {
				complain(err)
			}
		},
		TrafficOf: func(string) *intercept.Traffic { return &traffic },
	}
	t, err := newTunnel(id, s.Peer, s.Address, local.Handler(), func(err error) {
		if err != nil {
			complain(err)
			return
		}
		fmt.Println(host.Ready)
	})
	if err != nil {
		return err
	}
	return t.Run(ctx)
}

// complain writes an error for bench, which shows it when the process does not get ready.
func complain(err error) { fmt.Fprintln(os.Stderr, err) }

// runAPIServer serves the handler with which the API server forwards services/proxy to a Service.
func runAPIServer(ctx context.Context, s *settings) error {
	pair, err := tls.X509KeyPair(s.Identity, s.Identity)
	if err != nil {
		return fmt.Errorf("read certificate: %w", err)
	}
	l, err := listen(ctx, ":"+apiServerPort)
	if err != nil {
		return err
	}
	to := &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", clientPort), Path: tunnel.PathClient}
	server := &http.Server{
		Handler:   proxy.NewUpgradeAwareHandler(to, http.DefaultTransport, true, false, responder{}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: time.Minute,
	}
	fmt.Println(host.Ready)
	return server.ServeTLS(l, "", "")
}

type responder struct{}

func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusBadGateway)
}
