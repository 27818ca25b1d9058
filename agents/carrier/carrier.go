package carrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sonde-operator/sonde/internal/restriction"
	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/memory"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Pod is the target's network namespace, as the opener hands it over.
type Pod interface {
	// Listeners get the redirected connections. The local address of a connection is its original destination.
	Listeners() []net.Listener
	// Steer begins or ends the redirection of new connections to a port.
	Steer(ctx context.Context, port uint16, on bool) error
	// Listens reports whether the app listens on a port.
	Listens(ctx context.Context, port uint16) (bool, error)
	// Dial connects to the app. The connection is not redirected.
	Dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error)
	// Done is closed when the opener has gone.
	Done() <-chan struct{}
}

const (
	// DefaultConnections that a carrier holds.
	DefaultConnections = 4096
	// DefaultIdle is Config.IdleAfter. It is longer than Kubernetes takes to replace Stowaway after the loss of its node.
	DefaultIdle = 15 * time.Minute
	// drainTime is how long connections may go on when the carrier ends.
	drainTime = 5 * time.Second
	// settleTime is how long connections that began before the end of steering may take to be accepted.
	settleTime = 100 * time.Millisecond
	// acceptPause after an error of a listener, for example too many open files.
	acceptPause = 10 * time.Millisecond
)

// Config of a carrier. All fields are required.
type Config struct {
	// Connect asks the opener for the Pod's sockets.
	Connect func(context.Context) (Pod, error)
	// Stowaway is the address of its port for peers, and StowawayKey its key.
	Stowaway    string
	StowawayKey tunnel.PublicKey
	Identity    *tunnel.Identity
	// PodUID and Pod ("namespace/name") of the target.
	PodUID, Pod string
	// Connections is the bound of connections at one time. Near it the carrier ends steering, so the app gets the others.
	Connections int
	// IdleAfter is how long the carrier runs without a route before it exits. The operator is then gone for good.
	IdleAfter time.Duration
	// Confined returns an error if this process has any rights, as keeper.CheckConfinement does.
	Confined func() error
	// Restrict gives up what the carrier does not need once it has its sockets, as Restrict does.
	Restrict func(stowaway string) (restriction.InForce, error)
	Log      *slog.Logger
}

// Carrier relays the connections of one Pod.
type Carrier struct {
	cfg     *Config
	ctx     context.Context //nolint:containedctx // the routes' contexts are made of it
	pod     Pod
	routing atomic.Pointer[routing]
	peer    atomic.Pointer[tunnel.Peer]
	steerer *steerer
	kick    chan struct{}
	history history
	// short: memory is short, so the app gets new connections. excess is memory.Excess, but for tests.
	short  atomic.Bool
	excess func() int
	// sockets in bytes is handover.SocketMemory, but for tests. crowded says that they held too much at the last check. measureAt is when
	// the next one is due. Of the goroutine of relieve.
	sockets   atomic.Int64
	crowded   bool
	measureAt time.Time
	mu        sync.Mutex
	conns     map[*conn]struct{}
	closed    bool
	wg        sync.WaitGroup
}

// errOpenerGone ends the carrier: without the opener nothing is redirected.
var errOpenerGone = errors.New("the opener has gone")

// Run relays until ctx ends, and then returns nil. It returns an error if the carrier is not confined, or the opener goes.
func Run(ctx context.Context, cfg *Config) error {
	if err := cfg.Confined(); err != nil {
		return fmt.Errorf("check the carrier by the rules of keepers: %w", err)
	}
	pod, err := cfg.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to the opener: %w", err)
	}
	inForce, err := cfg.Restrict(cfg.Stowaway)
	if err != nil {
		return err
	}
	cfg.Log.Info("Confining the carrier", "restrictions", inForce)
	return newCarrier(cfg, pod).run(ctx)
}

func newCarrier(cfg *Config, pod Pod) *Carrier {
	c := &Carrier{cfg: cfg, pod: pod, kick: make(chan struct{}, 1), conns: map[*conn]struct{}{}, excess: memory.Excess}
	c.sockets.Store(handover.SocketMemory)
	c.steerer = newSteerer(pod.Steer, cfg.Log)
	c.steerer.listens = pod.Listens
	c.routing.Store(&routing{})
	return c
}

// run owns all goroutines of the carrier. They have ended when it returns.
func (c *Carrier) run(ctx context.Context) error {
	var cancel context.CancelFunc
	// Connections and their streams outlive ctx by drainTime.
	c.ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer c.wg.Wait()
	defer c.closeAll()
	defer cancel()
	for _, l := range c.pod.Listeners() {
		c.wg.Go(func() { c.accept(l) })
	}
	closeListeners := sync.OnceFunc(func() {
		for _, l := range c.pod.Listeners() {
			_ = l.Close()
		}
	})
	defer closeListeners()
	stop := make(chan struct{})
	var steering sync.WaitGroup
	steering.Go(func() { c.steer(stop) })
	c.wg.Go(func() { c.follow(c.ctx) })
	c.wg.Go(func() { c.relieve(c.ctx) })
	err := c.wait(ctx)
	if err != nil {
		closeListeners() // a frozen opener still redirects, and without listeners the kernel gives new connections to the app
	}
	close(stop)
	steering.Wait()
	c.drain()
	return err
}

// wait returns when the carrier is to end, and why: nil if ctx has ended.
func (c *Carrier) wait(ctx context.Context) error {
	check := time.NewTicker(c.cfg.IdleAfter / idleChecks)
	defer check.Stop()
	used := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.pod.Done():
			return errOpenerGone
		case now := <-check.C:
			if c.peer.Load() != nil && len(c.routing.Load().byID) > 0 {
				used = now
			}
			if now.Sub(used) > c.cfg.IdleAfter {
				return fmt.Errorf("no route for %s: the carrier exits, because the operator seems to be gone", c.cfg.IdleAfter)
			}
		}
	}
}

// idleChecks is the number of checks within IdleAfter.
const idleChecks = 10

// steer makes the opener follow the routes, and ends all steering in the end.
func (c *Carrier) steer(stop <-chan struct{}) {
	for {
		var due <-chan time.Time
		if next := c.steerer.update(c.ctx, c.routing.Load(), time.Now()); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-stop:
			c.steerer.update(c.ctx, &routing{}, time.Now())
			return
		case <-c.kick:
		case <-due:
		}
	}
}

func (c *Carrier) kickSteerer() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *Carrier) accept(l net.Listener) {
	for {
		down, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			c.cfg.Log.Warn("Accepting a connection failed", "error", err)
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		c.start(down.(*net.TCPConn))
	}
}

// start serves a connection, unless the carrier is full.
func (c *Carrier) start(down *net.TCPConn) {
	to := down.LocalAddr().(*net.TCPAddr).AddrPort()
	one := newConn(c, down, netip.AddrPortFrom(to.Addr().Unmap(), to.Port()))
	c.mu.Lock()
	n := len(c.conns)
	full := n >= c.cfg.Connections || c.closed
	if !full {
		c.conns[one] = struct{}{}
		n++
	}
	c.mu.Unlock()
	if n >= c.cfg.Connections-c.cfg.Connections/8 && c.steerer.setFull(true) {
		c.cfg.Log.Warn("The carrier is full; the app gets new connections", "connections", n)
		c.kickSteerer()
	}
	if full {
		_ = down.Close() // the peer learns at once
		return
	}
	one.buffers = bufferSize(n)
	setBuffers(down, one.buffers)
	c.wg.Go(func() {
		defer c.ended(one)
		one.serve()
	})
}

func (c *Carrier) ended(one *conn) {
	c.mu.Lock()
	delete(c.conns, one)
	n := len(c.conns)
	c.mu.Unlock()
	c.maybeRoom(n)
}

// maybeRoom makes the carrier take connections again, if n leave room for more.
func (c *Carrier) maybeRoom(n int) {
	if n <= c.cfg.Connections/2 && !c.short.Load() && c.steerer.setFull(false) {
		c.kickSteerer()
	}
}

// drain lets connections end that are in the middle of a request, and clients see the end of the others.
func (c *Carrier) drain() {
	deadline := time.Now().Add(drainTime)
	time.Sleep(settleTime)
	for time.Now().Before(deadline) {
		left := c.all()
		if len(left) == 0 {
			return
		}
		for _, one := range left {
			one.closeIdle()
		}
		time.Sleep(acceptPause)
	}
}

func (c *Carrier) all() []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*conn, 0, len(c.conns))
	for one := range c.conns {
		all = append(all, one)
	}
	return all
}

func (c *Carrier) closeAll() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	for _, one := range c.all() {
		one.cut()
	}
}
