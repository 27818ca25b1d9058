package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/gate"
	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// Exit codes of a probe, which the manager sees in the container's status.
const (
	ExitComplete   = 0 // the account is complete
	ExitIncomplete = 3 // there is a file, but it or its account is incomplete
	ExitFailed     = 4 // failed before it was attached: there is no file
)

// Options of a probe beside its configuration. All are required except HostNetwork and Gate.
type Options struct {
	// CaptureUID is the UID of the capture: a configuration with another one is refused.
	CaptureUID string
	// PodUID is the UID of the target as its cgroup has it (a static Pod's is its config hash).
	PodUID  string
	PodName string
	Node    string
	// Duration of the capture, from the moment when the probe is attached.
	Duration time.Duration
	// HostNetwork allows a target whose network namespace is the node's.
	HostNetwork bool
	// Gate says that the Pod waits at its gate, which the probe opens when it is attached.
	Gate bool

	ConfigFile string // captureconfig.Key in ConfigDir
	ResultsDir string
	ControlDir string
	// TerminationLog is the file that the kubelet takes the termination message from; it must exist.
	TerminationLog string
}

// Probe is one capture of one Pod.
type Probe struct {
	options Options
	engines func(capture.Kind) capture.Engine
	target  target
	log     *slog.Logger
	report  *reporter
	follow  *followers
	// rights returns an error that names missing capabilities.
	rights func() error
	// awaitGate opens the gate of a Pod when it starts (agents/gate). gateStuck is a message for the user about a gate
	// that stays closed.
	awaitGate func(ctx context.Context, podUID string) (gate.Opened, error)
	gateStuck atomic.Pointer[string]
	waits     waits
}

// New returns a probe of this node's processes; engines returns the engine of a kind for packets.
func New(o *Options, engines func(capture.Kind) capture.Engine, log *slog.Logger) *Probe {
	on := nodeTarget{uid: o.PodUID, hostNetwork: o.HostNetwork}
	if o.Gate {
		on.grace = gateGrace
	}
	return &Probe{
		options: *o, engines: engines, target: on, log: log, waits: defaultWaits,
		rights: func() error { return checkRights(o.Gate) }, awaitGate: gate.Opener{}.Await,
	}
}

// Run captures until the duration has passed, a limit is reached, the target leaves, the keeper requests a stop, or ctx ends
// (SIGTERM: reason Drained), and returns the exit code. It always writes the last account to the progress file and to the
// termination log, even after a panic.
func (p *Probe) Run(ctx context.Context) (code int) {
	report, err := newReporter(p.options.ResultsDir, p.options.TerminationLog, p.log)
	if err != nil {
		p.log.Error("Starting failed", "error", err)
		return ExitFailed
	}
	report.account.Gated = p.options.Gate
	p.report, p.follow = report, newFollowers(p.options.ControlDir, report)
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("Recovering from a panic", "panic", r, "stack", string(debug.Stack()))
			p.report.finish(account.ReasonProbeError, false, fmt.Sprintf("panic: %v: please report this with the probe's log", r))
		}
		p.follow.close()
		code = p.report.close()
	}()
	p.report.start(p.waits.report)
	p.run(ctx)
	return code
}

// run is Run between the first and the last report.
func (p *Probe) run(ctx context.Context) {
	// SIGTERM is one cause of the end among others, so it must not cancel a parent context.
	running, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(stopRequest(account.ReasonDrained)) })()
	p.guard(end, func() { p.awaitStop(running, end) })

	if err := p.rights(); err != nil {
		p.fail(running, err)
		return
	}
	w, err := p.configure(running)
	if err != nil {
		p.fail(running, err)
		return
	}
	r, inode, err := p.attach(running, w)
	if err != nil {
		p.fail(running, err)
		return
	}
	p.report.attached(r.count)
	p.log.Info("Attached", slices.Concat(w.logFields(), []any{"pod", p.options.PodName, "duration", p.options.Duration.String()}, engineFields(r))...)
	p.guard(end, func() { p.awaitTarget(running, end, inode) })

	timed, cancel := context.WithTimeout(running, p.options.Duration)
	defer cancel()
	if p.options.Gate {
		p.guard(end, func() { p.openGate(timed) })
	}
	o := r.run(timed)
	cancel() // stops opening the gate: the Pod would start untraced
	p.conclude(o, context.Cause(running))
}

// engineFields are the attached engine as keys and values for the log.
func engineFields(r session) []any {
	var a account.Account
	r.count(&a)
	fields := []any{"engine", a.Engine}
	if a.EngineMessage != "" {
		fields = append(fields, "engineMessage", a.EngineMessage)
	}
	return fields
}

// guard runs fn in a goroutine. A panic in it ends the capture, not the process.
func (p *Probe) guard(end context.CancelCauseFunc, fn func()) {
	go func() {
		defer func() {
			if r := recover(); r != nil {
				p.log.Error("Recovering from a panic", "panic", r, "stack", string(debug.Stack()))
				end(fmt.Errorf("panic: %v: please report this with the probe's log", r))
			}
		}()
		fn()
	}()
}

// readConfig reads this capture's configuration. A deleted capture may have used the ConfigMap's name just before, and the
// kubelet may still mount its content: readConfig waits for the next refresh.
func (p *Probe) readConfig(ctx context.Context) (captureconfig.Config, error) {
	ctx, cancel := context.WithTimeout(ctx, p.waits.config)
	defer cancel()
	tick := time.NewTicker(p.waits.retry)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(p.options.ConfigFile)
		if err != nil {
			return captureconfig.Config{}, fmt.Errorf("read configuration: %w", err)
		}
		cfg, err := captureconfig.Parse(b)
		if err != nil || cfg.UID == p.options.CaptureUID {
			return cfg, err
		}
		select {
		case <-ctx.Done():
			return captureconfig.Config{}, fmt.Errorf("the mounted configuration belongs to capture %s, not %s: create the capture again", cfg.UID, p.options.CaptureUID)
		case <-tick.C:
		}
	}
}

// fileMode of results: the keeper reads them as another user.
const fileMode = 0o644

// configure reads the configuration and returns the probe's work.
func (p *Probe) configure(ctx context.Context) (work, error) {
	cfg, err := p.readConfig(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.Trace != nil {
		return p.newCalls(&cfg)
	}
	return p.newPackets(&cfg)
}

// fail ends a probe that was never attached. If ctx has ended, its cause is the better explanation.
func (p *Probe) fail(ctx context.Context, err error) {
	reason := account.ReasonProbeError
	if cause := context.Cause(ctx); cause != nil {
		reason, err = reasonOf(cause), fmt.Errorf("ended before the capture began: %w", cause)
	} else if isGone(err) {
		reason = account.ReasonTargetGone
	} else if disk.IsFull(err) {
		reason = account.ReasonDiskFull
	}
	p.log.Error("Ending before the capture began", "reason", reason, "error", err)
	p.report.finish(reason, false, err.Error())
}

// conclude completes the account of a recording. cause is why it was asked to end; nil if it ended by itself.
func (p *Probe) conclude(o outcome, cause error) {
	reason, complete, message := conclusion(&o, cause)
	if stuck := p.gateStuck.Load(); stuck != nil {
		message = strings.TrimSpace(*stuck + ". " + message)
	}
	if o.end != nil {
		if err := o.end(reason, complete, message); err != nil {
			complete = false
			message = strings.TrimSpace("the end of the files could not be written: " + err.Error() + ". " + message)
		}
	}
	var request stopRequest
	if errors.As(cause, &request) && request != account.ReasonDrained {
		p.report.asked()
	}
	a := p.report.final(o.count)
	p.log.Info("Ending", append([]any{
		"reason", reason, "complete", complete, "message", message,
		"seen", a.Seen, "written", a.Packets + a.Events, "dropped", a.Dropped() + a.LostEvents(),
	}, o.details...)...)
	p.report.finish(reason, complete, message)
}
