package opener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/opener/steer"
	"github.com/sonde-operator/sonde/internal/wire/handover"
)

// Exit codes of an opener, which the manager sees in the container's status. The termination message says more.
const (
	ExitEnded       = 0 // asked to end, or the Pod has gone
	ExitCarrierGone = 3
	ExitFailed      = 4
)

// Options of an opener. All are required.
type Options struct {
	// PodUID is the UID of the target as its cgroup has it (a static Pod's is its config hash).
	PodUID  string
	PodName string
	// CarrierUser is the only user that may connect to Socket.
	CarrierUser uint32
	// Socket is the path of the Unix socket for the carrier.
	Socket string
	// Ready is the file that is made when the opener steers. It must be in a folder that the carrier cannot write to, or at
	// least be missing at the start.
	Ready string
	// TerminationLog is the file that the kubelet takes the termination message from. It is not created if it is missing.
	TerminationLog string
}

// waits are timeouts and intervals; tests shorten them.
type waits struct {
	process time.Duration // for a process of the Pod in a network namespace of its own
	retry   time.Duration // between two attempts to find one
	carrier time.Duration // for the carrier to connect
	drain   time.Duration // for the carrier to end after SIGTERM
}

// A Pod that is intercepted runs already, so its process is missed only while it restarts.
var defaultWaits = waits{process: 20 * time.Second, retry: 200 * time.Millisecond, carrier: 2 * time.Minute, drain: handover.DrainTime}

// Opener serves one carrier of one Pod.
type Opener struct {
	options Options
	target  target
	waits   waits
	log     *slog.Logger
}

// New returns an opener for a Pod of this node.
func New(o *Options, log *slog.Logger) *Opener {
	return &Opener{options: *o, target: nodeTarget{uid: o.PodUID}, waits: defaultWaits, log: log}
}

// Run steers until the carrier or the Pod has gone, or ctx ends (SIGTERM), and returns the exit code. After SIGTERM it serves its
// carrier until that has ended, too. It writes a handover.Outcome to the termination log.
func (o *Opener) Run(ctx context.Context) (code int) {
	err := o.run(ctx)
	outcome, code := conclude(err)
	o.log.Info("Ending", "pod", o.options.PodName, "reason", outcome.Reason, "message", outcome.Message)
	if err := writeTermination(o.options.TerminationLog, outcome); err != nil {
		o.log.Error("Writing the termination message failed", "error", err)
	}
	return code
}

// errStopped is the cause of an end by SIGTERM.
var errStopped = errors.New("asked to end")

// run returns why the opener has ended. Then the program is detached.
func (o *Opener) run(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			o.log.Error("Recovering from a panic", "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v: please report this with the opener's log", r)
		}
	}()
	running, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(errStopped) })()

	ns, err := o.awaitNetNS(running)
	if err != nil {
		return err
	}
	defer ns.Close()
	p, err := open(ns)
	if err != nil {
		return err
	}
	p.log = o.log
	defer func() { o.close(p) }()

	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(nil)
	watch.Go(func() { o.awaitTarget(running, end, ns.Inode) })
	return o.serve(running, p)
}

// serve waits for the carrier and serves it.
func (o *Opener) serve(ctx context.Context, p *pod) error {
	server, err := handover.Listen(o.options.Socket, o.options.CarrierUser)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := makeReady(o.options.Ready); err != nil {
		return err
	}
	o.log.Info("Attached", "pod", o.options.PodName, "ipv6", len(p.listeners) > 1)
	session, err := accept(ctx, server, o.waits.carrier)
	if err != nil {
		return err
	}
	defer session.Close()
	_ = server.Close() // there is one carrier
	if err := p.handOver(session); err != nil {
		return err
	}
	o.log.Info("Serving the carrier", "pod", o.options.PodName)
	serving, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { o.stop(context.Cause(ctx), p, end) })()
	err = session.Serve(serving, p)
	if errors.Is(context.Cause(ctx), errStopped) && errors.Is(err, handover.ErrCarrierGone) {
		return errStopped
	}
	return err
}

// stop ends the session. After SIGTERM, which the carrier gets at the same time, it only ends steering: the carrier still dials the
// app for connections that it has accepted, and then ends the session itself.
func (o *Opener) stop(cause error, p *pod, end context.CancelCauseFunc) {
	if !errors.Is(cause, errStopped) {
		end(cause)
		return
	}
	p.stop()
	time.AfterFunc(o.waits.drain, func() { end(cause) })
}

// errNoCarrier says that no carrier has connected.
var errNoCarrier = fmt.Errorf("%w: it has not connected", handover.ErrCarrierGone)

func accept(ctx context.Context, server *handover.Server, wait time.Duration) (*handover.Session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errNoCarrier)
	defer cancel()
	return server.Accept(ctx)
}

// close ends steering and reports what was counted.
func (o *Opener) close(p *pod) {
	missed, err := p.program.Missed()
	if err == nil && missed > 0 {
		o.log.Info("The app got connections that were to be steered", "connections", missed)
	}
	if err := errors.Join(err, p.close()); err != nil {
		o.log.Error("Ending the steering failed", "error", err)
	}
}

// awaitTarget ends the opener when the Pod's sandbox has ended.
func (o *Opener) awaitTarget(ctx context.Context, end context.CancelCauseFunc, inode uint64) {
	switch err := o.target.gone(ctx, inode); {
	case ctx.Err() != nil:
	case err != nil:
		end(fmt.Errorf("watch the Pod: %w", err)) // without a watch the Job would outlive its Pod
	default:
		end(errTargetGone)
	}
}

// makeReady makes the file that `agent ready --file` looks for. The carrier may write to the same folder: never follow its link.
func makeReady(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old readiness file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("report readiness: %w", err)
	}
	return f.Close()
}

// conclude returns the outcome of an end, and the exit code.
func conclude(err error) (handover.Outcome, int) {
	reason, code := handover.ReasonFailed, ExitFailed
	switch {
	case errors.Is(err, errStopped):
		reason, code = handover.ReasonStopped, ExitEnded
	case errors.Is(err, errTargetGone), errors.Is(err, process.ErrNoProcess):
		reason, code = handover.ReasonTargetGone, ExitEnded
	case errors.Is(err, handover.ErrCarrierGone):
		reason, code = handover.ReasonCarrierGone, ExitCarrierGone
	case errors.Is(err, errHostNetwork):
		reason = handover.ReasonHostNetwork
	case errors.Is(err, steer.ErrUnsupported):
		reason = handover.ReasonKernelUnsupported
	}
	return handover.Outcome{Reason: reason, Message: err.Error()}, code
}

// writeTermination writes to the file that the kubelet has mounted.
func writeTermination(path string, outcome handover.Outcome) error {
	b, err := outcome.Marshal()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
