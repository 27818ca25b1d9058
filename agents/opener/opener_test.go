package opener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/opener/steer"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/test/podnet"
)

// absent is a target without a network namespace of its own.
type absent struct {
	err error
}

const nodesInode = 7

func (a absent) open() (*process.NetNS, error) {
	if a.err != nil {
		return nil, a.err
	}
	f, err := os.Open(os.DevNull)
	return &process.NetNS{File: f, Inode: nodesInode}, err
}

func (absent) node() (uint64, error) { return nodesInode, nil }

func (absent) gone(ctx context.Context, _ uint64) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestNoNetworkNamespace(t *testing.T) {
	cases := map[string]struct {
		err         error
		wantCode    int
		wantReason  handover.Reason
		wantMessage string
	}{
		"host network":    {wantCode: ExitFailed, wantReason: handover.ReasonHostNetwork, wantMessage: "hostNetwork"},
		"no process":      {err: process.ErrNoProcess, wantCode: ExitEnded, wantReason: handover.ReasonTargetGone, wantMessage: "no process of the pod"},
		"left its own":    {err: process.ErrOwnNetNS, wantCode: ExitFailed, wantReason: handover.ReasonFailed, wantMessage: "have left its network namespace"},
		"unreadable node": {err: os.ErrPermission, wantCode: ExitFailed, wantReason: handover.ReasonFailed, wantMessage: "permission denied"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			message := filepath.Join(t.TempDir(), "message")
			if err := os.WriteFile(message, []byte("an older and longer message"), 0o600); err != nil {
				t.Fatal(err)
			}
			o := New(&Options{PodName: "web-1", TerminationLog: message}, slog.New(slog.DiscardHandler))
			o.target, o.waits = absent{tc.err}, waits{process: 5 * time.Millisecond, retry: time.Millisecond}
			code := o.Run(t.Context())
			b, err := os.ReadFile(message)
			if err != nil {
				t.Fatal(err)
			}
			outcome, err := handover.ParseOutcome(b)
			if err != nil || code != tc.wantCode || outcome.Reason != tc.wantReason || !strings.Contains(outcome.Message, tc.wantMessage) {
				t.Errorf("exit code %d, outcome %+v, %v; want %+v", code, outcome, err, tc)
			}
		})
	}
}

func TestConclude(t *testing.T) {
	cases := map[string]struct {
		err        error
		wantCode   int
		wantReason handover.Reason
	}{
		"SIGTERM":          {err: errStopped, wantReason: handover.ReasonStopped},
		"Pod gone":         {err: fmt.Errorf("x: %w", errTargetGone), wantReason: handover.ReasonTargetGone},
		"carrier gone":     {err: handover.ErrCarrierGone, wantCode: ExitCarrierGone, wantReason: handover.ReasonCarrierGone},
		"no carrier":       {err: errNoCarrier, wantCode: ExitCarrierGone, wantReason: handover.ReasonCarrierGone},
		"old kernel":       {err: steer.ErrUnsupported, wantCode: ExitFailed, wantReason: handover.ReasonKernelUnsupported},
		"any other reason": {err: errors.New("x"), wantCode: ExitFailed, wantReason: handover.ReasonFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			outcome, code := conclude(tc.err)
			if code != tc.wantCode || outcome.Reason != tc.wantReason || outcome.Message != tc.err.Error() {
				t.Errorf("exit code %d, outcome %+v", code, outcome)
			}
		})
	}
}

// The carrier may put links into the folder of the readiness file.
func TestReadyFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, ready := filepath.Join(dir, "victim"), filepath.Join(dir, "ready")
	if err := os.Symlink(victim, ready); err != nil {
		t.Fatal(err)
	}
	if err := makeReady(ready); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(victim); !os.IsNotExist(err) {
		t.Errorf("the link's target: %v", err)
	}
	if info, err := os.Lstat(ready); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// An ended connection keeps its port for a minute (TIME_WAIT), but dials do not run out of ports.
func TestDialsOutnumberPorts(t *testing.T) {
	n := newTestNet(t)
	inNS(t, n.pod, func() error { return os.WriteFile(portRange, []byte("40000 40031"), 0o600) })
	n.app(t, "APP", appPort)
	p := openPod(t, n)
	const dials = 200
	for _, to := range []string{podIP, "::1"} {
		for i := range dials {
			if err := p.askOnce(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(to), 8080)); err != nil {
				t.Fatalf("dial %d of %s: %v", i, to, err)
			}
		}
	}
	if f, err := p.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:8082"), 0); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("dial of no app: %v, %v", f, err)
	}
}

// A dial to an address with a scope comes from this address.
func TestDialLinkLocal(t *testing.T) {
	n := newTestNet(t)
	podnet.Up(t, n.pod, "eth0", "fe80::78/64")
	n.app(t, "APP", appPort)
	p := openPod(t, n)
	if err := p.Steer(8080, true); err != nil {
		t.Fatal(err)
	}
	var scope uint32
	inNS(t, n.pod, func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		req, err := unix.NewIfreq("eth0")
		if err == nil {
			err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req)
			scope = req.Uint32()
		}
		return err
	})
	f, err := p.Dial(t.Context(), netip.MustParseAddrPort("[fe80::78]:8080"), scope)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
}

// A dial ends with its context when the app does not accept.
func TestDialTimeout(t *testing.T) {
	n := newTestNet(t)
	p := openPod(t, n)
	fd, err := p.socket(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: 8080}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for range 64 { // until the queue of the listener is full
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		f, err := p.Dial(ctx, netip.MustParseAddrPort("127.0.0.1:8080"), 0)
		cancel()
		if errors.Is(err, unix.ETIMEDOUT) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
	}
	t.Error("no dial has timed out")
}

func openPod(t *testing.T, n *testNet) *pod {
	t.Helper()
	p, err := open(&process.NetNS{File: n.pod, Inode: n.inode})
	if err != nil {
		t.Fatal(err)
	}
	p.log = slog.New(slog.DiscardHandler)
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// askOnce dials, asks and closes first, so that this side keeps the port.
func (p *pod) askOnce(ctx context.Context, to netip.AddrPort) error {
	f, err := p.Dial(ctx, to, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("?\n")
	if err == nil {
		_, err = f.Read(make([]byte, 200))
	}
	return errors.Join(err, f.Close())
}
