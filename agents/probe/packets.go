package probe

import (
	"context"
	"slices"
	"strings"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// packets captures the target's packets.
type packets struct {
	engine capture.Engine
	config *capture.Config
	// podUID is the Pod's, if packets are to name its processes; empty otherwise.
	podUID string
}

// newPackets returns the work of a PacketCapture.
func (p *Probe) newPackets(cfg *captureconfig.Config) (*packets, error) {
	filters, err := socketFilters(cfg.Programs)
	if err != nil {
		return nil, err
	}
	c := &capture.Config{
		Interfaces:  cfg.Interfaces,
		Filters:     filters,
		FilterText:  cfg.Filter,
		SnapLen:     int(cfg.SnapLength),
		RingBytes:   int(cfg.RingBytes),
		MaxBytes:    cfg.MaxBytes,
		MaxPackets:  cfg.MaxPackets,
		Dir:         p.options.ResultsDir,
		Base:        fileBase(p.options.PodName, cfg.JobID, maxFileBase),
		FileMode:    fileMode,
		Section:     section(cfg, &p.options),
		Description: cfg.TargetNamespace + "/" + p.options.PodName + ", node " + p.options.Node,
		Owner:       cfg.UID,
		NodeNetwork: p.options.HostNetwork,
		Followed:    p.follow.some.Load,
		Complete:    p.follow.complete,
		Log:         p.log,
	}
	if cfg.DiskFloor != nil {
		c.DiskFloor = cfg.DiskFloor.Of
	}
	if cfg.Rotate != nil {
		c.Rotate = &record.Rotate{MaxBytes: cfg.Rotate.MaxBytes, Files: int(cfg.Rotate.Files)}
		c.Base, c.FilesChanged = fileBase(p.options.PodName, cfg.JobID, maxRingBase), p.report.filesChanged
	}
	w := &packets{engine: p.engines(engineKind(cfg.Engine)), config: c}
	if cfg.Processes {
		w.podUID = p.options.PodUID
	}
	return w, nil
}

// engineKind returns the kind of an engine in the configuration.
func engineKind(engine string) capture.Kind {
	switch engine {
	case captureconfig.EngineAuto:
		return capture.KindAuto
	case captureconfig.EngineBPF:
		return capture.KindBPF
	default:
		return capture.KindAFPacket
	}
}

func (w *packets) logFields() []any { return []any{"filter", w.config.FilterText} }

func (w *packets) attach(ns *process.NetNS) (session, error) {
	w.config.NetNS = ns.File // the engine makes its own handle
	if w.podUID != "" {
		w.config.Processes = processesOf(w.podUID, ns)
	}
	c, err := w.engine.Open(w.config)
	if err != nil {
		return nil, err
	}
	return packetRecording{c}, nil
}

// packetRecording is an attached capture.
type packetRecording struct{ capture.Capture }

func (r packetRecording) run(ctx context.Context) outcome {
	res := r.Run(ctx)
	return outcome{
		reason: res.Reason, err: res.Err, notes: notes(&res.Account), missing: isMissing(&res.Account), gap: hasGap(&res.Account),
		count: func(a *account.Account) { countPackets(a, &res.Account) },
	}
}

func (r packetRecording) count(a *account.Account) {
	c := r.Account()
	countPackets(a, &c)
	if a.State != account.StateCapturing {
		return
	}
	a.Reason, a.Message = "", ""
	if isMissing(&c) {
		a.Reason, a.Message = account.ReasonInterfaceNotFound, notes(&c)
	}
}

// isMissing reports whether an interface that the capture names does not exist, so that it has no index.
func isMissing(a *record.Account) bool {
	return slices.ContainsFunc(a.Interfaces, func(n record.InterfaceAccount) bool { return n.Note != "" && n.Index == 0 })
}

// hasGap reports whether packets may be missing that are not counted.
func hasGap(a *record.Account) bool {
	return slices.ContainsFunc(a.Interfaces, func(n record.InterfaceAccount) bool { return n.Gap })
}

// countPackets sets a capture's engine, counts and files in an account.
func countPackets(to *account.Account, a *record.Account) {
	to.Engine, to.EngineMessage = a.Engine, a.EngineMessage
	to.Counts, to.Processes = counts(&a.Counters), countProcesses(a.Processes)
	to.Interfaces = to.Interfaces[:0:0]
	for i := range a.Interfaces {
		n := &a.Interfaces[i]
		to.Interfaces = append(to.Interfaces, account.Interface{Name: n.Name, Counts: counts(&n.Counters)})
	}
	to.Files = to.Files[:0:0]
	for _, f := range a.Files {
		to.Files = append(to.Files, account.File{Name: f.Name, Bytes: f.Bytes})
	}
}

func counts(c *record.Counters) account.Counts {
	return account.Counts{
		Seen: int64(c.Received), Packets: int64(c.Written), Bytes: int64(c.Bytes),
		DroppedKernel: int64(c.DroppedKernel), DroppedRing: int64(c.DroppedRing), DroppedWriter: int64(c.DroppedWriter),
		Truncated: int64(c.Truncated), Overwritten: int64(c.Overwritten),
	}
}

// notes says which interfaces were not captured, and why. Gaps come first, because the account cuts long texts.
func notes(a *record.Account) string {
	var gaps, others []string
	for i := range a.Interfaces {
		switch n := &a.Interfaces[i]; {
		case n.Gap:
			gaps = append(gaps, n.Name+": "+n.Note)
		case n.Note != "":
			others = append(others, n.Name+": "+n.Note)
		}
	}
	return strings.Join(append(gaps, others...), "; ")
}
