package probe

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/output"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const (
	// traceEngine is the name of the tracer in the account.
	traceEngine = "tracepoints"
	traceSuffix = ".ndjson"
	// traceSpare is how many bytes are reserved for a file's last line: the account, with a bounded message and the
	// counts of all lost calls.
	traceSpare = 8192
)

// calls traces the target's system calls.
type calls struct {
	config trace.Config
	files  []output.FileConfig
	// sources are FLAP's sources, one for each file; nil for JSON lines.
	sources []string
	// notReported are events of the groups that the node's kernel does not report, and that are not counted as lost.
	notReported []string
	// hostNetwork says that the Pod is on the node's network, which has other Pods' connections, too.
	hostNetwork bool
}

// newCalls returns the work of a Trace.
func (p *Probe) newCalls(cfg *captureconfig.Config) (*calls, error) {
	t := cfg.Trace
	w := &calls{hostNetwork: p.options.HostNetwork, config: trace.Config{
		PodUID: p.options.PodUID, RingBytes: int(cfg.RingBytes), Durations: t.Durations, MinLatency: time.Duration(t.MinLatency),
		MaxEvents: uint64(t.MaxEvents), Containers: t.Containers,
	}}
	if t.Command != "" {
		w.config.Command = &kernel.Command{Name: t.Command, Children: t.Children}
	}
	for _, g := range t.Groups {
		w.config.Groups = append(w.config.Groups, decode.Group(g))
	}
	missing := trace.MissingEvents(w.config.Groups)
	w.notReported = slices.DeleteFunc(slices.Clone(missing), func(name string) bool { return name == decode.EventUring })
	file := output.FileConfig{Mode: fileMode, MaxBytes: cfg.MaxBytes, Floor: disk.Floor{Dir: p.options.ResultsDir}}
	if cfg.DiskFloor != nil {
		file.Floor.Keep = cfg.DiskFloor.Of
	}
	base := filepath.Join(p.options.ResultsDir, fileBase(p.options.PodName, cfg.JobID, maxRingBase))
	if t.Flap {
		return w.asFlap(file, base), nil
	}
	header, err := tracefmt.AppendHeader(nil, tracefmt.Header{
		Namespace: cfg.TargetNamespace, Target: cfg.Target, JobID: cfg.JobID, Pod: p.options.PodName, PodUID: p.options.PodUID,
		Node: p.options.Node, Arch: runtime.GOARCH, Groups: t.Groups, Durations: t.Durations || t.MinLatency > 0,
		Containers: t.Containers, Command: t.Command, Children: t.Children, Missing: missing,
	})
	if err != nil {
		return nil, err
	}
	file.Path, file.Header, file.Spare = base+traceSuffix, header, traceSpare
	w.files = []output.FileConfig{file}
	return w, nil
}

// asFlap adds a file for each of FLAP's sources, which share the limit.
func (w *calls) asFlap(file output.FileConfig, base string) *calls {
	for _, g := range w.config.Groups {
		if source := tracefmt.FlapSource(string(g)); !slices.Contains(w.sources, source) {
			w.sources = append(w.sources, source)
		}
	}
	file.MaxBytes /= int64(len(w.sources))
	for _, source := range w.sources {
		file.Path = base + "-trace_" + source + "_0.log"
		w.files = append(w.files, file)
	}
	return w
}

func (w *calls) logFields() []any {
	fields := []any{"groups", w.config.Groups}
	if len(w.config.Containers) > 0 {
		fields = append(fields, "containers", w.config.Containers)
	}
	if c := w.config.Command; c != nil {
		fields = append(fields, "command", c.Name, "children", c.Children)
	}
	return fields
}

func (w *calls) attach(ns *process.NetNS) (session, error) {
	r := &traceRecording{notReported: w.notReported}
	if !w.hostNetwork {
		w.config.NetNS = ns.File // the trace makes its own handle
	}
	for i := range w.files {
		f, err := output.CreateFile(&w.files[i])
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.files = append(r.files, f)
		r.names = append(r.names, filepath.Base(w.files[i].Path))
	}
	if w.sources == nil {
		w.config.Out, r.account = r.files[0], true
	} else {
		w.config.Flap = map[string]output.Sink{}
		for i, source := range w.sources {
			w.config.Flap[source] = r.files[i]
		}
	}
	t, err := trace.Open(&w.config)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	r.trace = t
	return r, nil
}

// traceRecording is an attached trace.
type traceRecording struct {
	trace   *trace.Trace
	files   []*output.File
	names   []string
	account bool // the file ends with an account
	// notReported events make a note.
	notReported []string
}

func (r *traceRecording) run(ctx context.Context) outcome {
	res := r.trace.Run(ctx)
	var details []any
	if len(res.Account.LostCalls) > 0 {
		details = []any{"lostCalls", res.Account.LostCalls}
	}
	if n := res.Account.Unnamed; n > 0 {
		details = append(details, "unnamed", n)
	}
	var notes string
	if len(r.notReported) > 0 {
		notes = "the node's kernel does not report these events: " + strings.Join(r.notReported, ", ")
	}
	return outcome{
		reason: res.Reason, err: res.Err, notes: notes, details: details,
		count: func(a *account.Account) { r.setCounts(a, &res.Account) },
		end: func(reason string, complete bool, message string) error {
			return r.end(tracefmt.Account{
				Written: res.Account.Written, Lost: lostEvents(&res.Account), LostCalls: res.Account.LostCalls,
				Unnamed:  res.Account.Unnamed,
				Complete: complete, Reason: reason, Message: message,
			})
		},
	}
}

func (r *traceRecording) count(a *account.Account) {
	t := r.trace.Account()
	r.setCounts(a, &t)
}

func (r *traceRecording) setCounts(to *account.Account, a *trace.Account) {
	to.Engine = traceEngine
	to.Seen, to.Events, to.Lost = int64(a.Written+a.Lost()), int64(a.Written), map[string]int64{}
	for place, n := range lostEvents(a) {
		to.Lost[place] = int64(n)
	}
	to.Bytes, to.Files = 0, to.Files[:0:0]
	for i, f := range r.files {
		to.Bytes += f.Size()
		to.Files = append(to.Files, account.File{Name: r.names[i], Bytes: f.Size()})
	}
}

// lostEvents returns the losses by place, without places that lost nothing.
func lostEvents(a *trace.Account) map[string]uint64 {
	lost := map[string]uint64{}
	for place, n := range map[string]uint64{
		"ring": a.LostRing, "rare": a.LostRare, "recursion": a.LostRecursion, "writer": a.LostWriter, "compat": a.LostCompat,
		"uring": a.LostUring, "aio": a.LostAIO,
	} {
		if n > 0 {
			lost[place] = n
		}
	}
	return lost
}

// end writes the account into the JSON lines; FLAP has none.
func (r *traceRecording) end(a tracefmt.Account) error {
	if !r.account {
		return r.close()
	}
	a.Message = text.Truncate(strings.ToValidUTF8(a.Message, ""), account.MaxText)
	line, err := tracefmt.AppendAccount(nil, a)
	if err != nil {
		return errors.Join(err, r.close())
	}
	return r.files[0].Last(line)
}

func (r *traceRecording) close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
