package probe

import (
	"context"
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
	ExitIncomplete = 3 // there is a file, but it or its account is not whole
	ExitFailed     = 4 // failed before it was attached: there is nothing
)

// Options of a probe: what it is told beside the configuration, and where the volumes are. All are required but
// HostNetwork and Gate.
type Options struct {
	// CaptureUID is the UID of the capture: a configuration of another one is never acted upon.
	CaptureUID string
	// PodUID is the UID of the target as its cgroup has it (a static Pod's is its config hash).
	PodUID  string
	PodName string
	Node    string
	// Duration is how long to capture from the moment that the probe is attached.
	Duration time.Duration
	// HostNetwork allows a target whose network namespace is the node's.
	HostNetwork bool
	// Gate says that the Pod waits at its gate, to be opened once the probe is attached.
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
	// rights returns an error for what this process lacks.
	rights func() error
	// opens the gate of a Pod as soon as there is one (agents/gate), and what is to be said of a gate that stays closed.
	opens func(ctx context.Context, podUID string) (time.Duration, error)
	stuck atomic.Pointer[string]
	// waits are how long things may take; tests shorten them.
	waits waits
}

// New returns a probe that uses this node's processes and the given engines for packets.
func New(o *Options, engines func(capture.Kind) capture.Engine, log *slog.Logger) *Probe {
	on := nodeTarget{uid: o.PodUID}
	if o.Gate {
		on.grace = gateGrace
	}
	return &Probe{
		options: *o, engines: engines, target: on, log: log, waits: defaultWaits,
		rights: func() error { return checkRights(o.Gate) }, opens: gate.Opener{}.Await,
	}
}

// Run captures until the duration is over, a limit is reached, the target leaves, someone asks for the end, or ctx ends
// (SIGTERM: reason Drained), and returns the exit code. Whatever happens, a panic too, the last account is written to
// the progress file and to the termination log.
func (p *Probe) Run(ctx context.Context) (code int) {
	report, err := newReporter(p.options.ResultsDir, p.options.TerminationLog, p.log)
	if err != nil {
		p.log.Error("Starting failed", "error", err)
		return ExitFailed
	}
	p.report = report
	defer func() {
		if r := recover(); r != nil {
			p.log.Error("Recovering from a panic", "panic", r, "stack", string(debug.Stack()))
			p.report.finish(account.ReasonProbeError, false, fmt.Sprintf("panic: %v: please report this with the probe's log", r))
		}
		code = p.report.close()
	}()
	p.report.start(p.waits.report)
	p.run(ctx)
	return code
}

// run is Run between the first and the last report.
func (p *Probe) run(ctx context.Context) {
	// SIGTERM is one of several reasons to end, so it is not a parent's end but a cause like the others.
	ending, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(asked(account.ReasonDrained)) })()
	p.guard(end, func() { p.awaitStop(ending, end) })

	if err := p.rights(); err != nil {
		p.fail(ending, err)
		return
	}
	w, err := p.configure(ending)
	if err != nil {
		p.fail(ending, err)
		return
	}
	r, inode, err := p.attach(ending, w)
	if err != nil {
		p.fail(ending, err)
		return
	}
	p.report.attached(r.count)
	p.log.Info("Attached", slices.Concat(w.asked(), []any{"pod", p.options.PodName, "duration", p.options.Duration.String()}, taken(r))...)
	p.guard(end, func() { p.awaitTarget(ending, end, inode) })

	timed, cancel := context.WithTimeout(ending, p.options.Duration)
	defer cancel()
	if p.options.Gate {
		p.guard(end, func() { p.openGate(timed) })
	}
	o := r.run(timed)
	cancel() // what is not open by now would start untraced
	p.conclude(o, context.Cause(ending))
}

// taken is the engine that is attached, for the log.
func taken(r session) []any {
	var a account.Account
	r.count(&a)
	taken := []any{"engine", a.Engine}
	if a.EngineMessage != "" {
		taken = append(taken, "engineMessage", a.EngineMessage)
	}
	return taken
}

// guard runs fn beside the capture; a panic in it ends the capture and not the process.
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

// readConfig reads this capture's configuration. The ConfigMap's name may have been another capture's
// a moment ago, whose content the kubelet may still have mounted: then its next refresh is awaited.
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
			return captureconfig.Config{}, fmt.Errorf("the configuration mounted is of capture %s, not of %s: create the capture again", cfg.UID, p.options.CaptureUID)
		case <-tick.C:
		}
	}
}

// fileMode of results: the keeper, another user, reads them.
const fileMode = 0o644

// configure reads the configuration and makes the probe's work of it.
func (p *Probe) configure(ctx context.Context) (work, error) {
	cfg, err := p.readConfig(ctx)
	if err != nil {
		return nil, err
	}
	if cfg.Trace != nil {
		return p.callsOf(&cfg)
	}
	return p.packetsOf(&cfg)
}

// fail ends a probe that was never attached. An end that was asked for meanwhile is the better explanation.
func (p *Probe) fail(ending context.Context, err error) {
	reason := account.ReasonProbeError
	if cause := context.Cause(ending); cause != nil {
		reason, err = reasonOf(cause), fmt.Errorf("ended before the capture began: %w", cause)
	} else if isGone(err) {
		reason = account.ReasonTargetGone
	} else if disk.IsFull(err) {
		reason = account.ReasonDiskFull
	}
	p.log.Error("Ending before the capture began", "reason", reason, "error", err)
	p.report.finish(reason, false, err.Error())
}

// conclude makes the last account of how the recording ended. cause is why it was to end, if it was.
func (p *Probe) conclude(o outcome, cause error) {
	reason, whole, message := judge(&o, cause)
	if stuck := p.stuck.Load(); stuck != nil {
		message = strings.TrimSpace(*stuck + ". " + message)
	}
	if o.end != nil {
		if err := o.end(reason, whole, message); err != nil {
			whole = false
			message = strings.TrimSpace("the files have no end: " + err.Error() + ". " + message)
		}
	}
	a := p.report.concluded(o.count)
	p.log.Info("Ending", append([]any{
		"reason", reason, "complete", whole, "message", message,
		"seen", a.Seen, "written", a.Packets + a.Events, "dropped", a.Dropped() + a.LostEvents(),
	}, o.details...)...)
	p.report.finish(reason, whole, message)
}
