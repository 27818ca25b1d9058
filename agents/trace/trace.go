package trace

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/node/iterator"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/output"
)

// DefaultRingBytes is the memory of all CPUs' rings together.
const DefaultRingBytes = 32 << 20

// DefaultFileScan is some hundred times as long as a scan usually takes. The rings are not read meanwhile.
const DefaultFileScan = 5 * time.Second

// Config says what to trace. Zero values mean the defaults.
type Config struct {
	// PodUID of the target, which must have a process.
	PodUID string
	// Proc is where the node's processes are; default /proc.
	Proc string
	// NodeRoot is the root directory of the node's file system; default Proc/1/root.
	NodeRoot string
	// NetNS is the Pod's network namespace, whose connections are all recorded. It is used only during Open: the trace makes its
	// own handle. Nil is for a Pod on the node's network: the connections of its processes are recorded.
	NetNS *os.File
	// Groups of calls to record.
	Groups []decode.Group
	// Containers are the names of the containers to record; empty means all. A container's name is known when the kubelet
	// has learned that it has started: earlier events of its cgroup are held back until then.
	Containers []string
	// Command selects the processes to record; nil means all.
	Command *kernel.Command
	// Durations measures how long each call takes, which costs each call of the node's processes some nanoseconds more.
	Durations bool
	// MinLatency leaves out calls that took less.
	MinLatency time.Duration
	// RingBytes of memory for all CPUs; default DefaultRingBytes.
	RingBytes int
	// FileScan is how long the scans of the node's open files may take together, at the start of the trace and at its end; default
	// DefaultFileScan.
	FileScan time.Duration
	// MaxEvents is the number of events after which the trace ends; zero means no limit.
	MaxEvents uint64
	// Out gets JSON lines, or records if Binary is set.
	Out output.Sink
	// Flap, if not nil, gets lines in FLAP's format instead: a sink for each of its sources (tracefmt.FlapSource). They have
	// calls and page faults only, with durations.
	Flap map[string]output.Sink
	// Binary writes the kernel's records without decoding them: make bench measures the cost of reading alone.
	Binary bool
}

func (c *Config) timed() bool { return c.Durations || c.MinLatency > 0 || c.Flap != nil }

// network reports whether connections and the names of sockets are recorded: FLAP has neither.
func (c *Config) network() bool {
	return c.Flap == nil && slices.Contains(c.Groups, decode.GroupNetwork)
}

// namesFiles reports whether events have the paths of descriptors. If the calls that open them are not recorded, or short calls are
// left out, it is not known what a descriptor is.
func (c *Config) namesFiles() bool {
	return c.MinLatency == 0 && (slices.Contains(c.Groups, decode.GroupFile) || slices.Contains(c.Groups, decode.GroupNetwork))
}

// needsOwners reports whether a connection is recorded only if its process is known.
func (c *Config) needsOwners() bool { return c.NetNS == nil || c.Command != nil }

func (c *Config) output() output.Config {
	w := output.Config{Sinks: map[string]output.Sink{"": c.Out}, MaxEvents: c.MaxEvents}
	switch {
	case c.Flap != nil:
		w.Format, w.Sinks = output.Flap, c.Flap
	case c.Binary:
		w.Format = output.Binary
	}
	return w
}

// Account of a trace. The number of all events is Written + Lost + BeyondLimit.
type Account struct {
	Written uint64
	// LostRing counts calls and page faults for which a CPU's ring had no room, LostRare other events without room.
	// LostRecursion counts calls at which the kernel did not run the program. LostWriter counts events that could not
	// be written (disk full).
	LostRing, LostRare, LostRecursion, LostWriter uint64
	// LostCompat counts the calls of 32-bit programs and by the x32 interface, which are never recorded.
	LostCompat uint64
	// LostUring counts operations of io_urings that are not recorded because this kernel's tracepoints for them, or the
	// operations, are unknown. Then each ring counts once more, because its process may need no call to submit. It also
	// counts operations whose arguments were forgotten because too many waited for their results.
	LostUring uint64
	// LostAIO counts the operations of Linux AIO that calls of io_submit have submitted. None is recorded.
	LostAIO uint64
	// LostCalls splits LostRing and LostRare by the name of the call or event. It is set when the trace has ended.
	LostCalls map[string]uint64
	// Unnamed counts names of files and working directories that did not fit into the tracer's memory, or are not sure. Their events are
	// recorded without a path. One more stands for sockets that are older than the trace, and descriptors that an exec does not
	// close, if not all of them were found or kept. It is set when the trace has ended.
	Unnamed uint64
	// BeyondLimit counts events that came after MaxEvents or the file's limit was reached. They are not lost.
	BeyondLimit uint64
}

// Lost is the sum of all events that are lost.
func (a *Account) Lost() uint64 {
	return a.LostRing + a.LostRare + a.LostRecursion + a.LostWriter + a.LostCompat + a.LostUring + a.LostAIO
}

// Result is the outcome of Run.
type Result struct {
	Reason  recording.Reason
	Account Account
	// Err explains DiskFull and Error; nil otherwise.
	Err error
}

// Trace is an attached trace.
type Trace struct {
	cfg        Config
	calls      *decode.Table
	netns      netns
	program    *kernel.Program
	rare       *kernel.RareRing
	decoder    *decode.Decoder
	containers selection
	held       holdback
	out        *output.Writer
	// ringsBefore is how many io_urings are older than the trace, if their operations are not recorded.
	ringsBefore uint64
	// unowned is how many connections are older than the trace and will be missing at their end. One more stands for those that
	// were not found, or not kept.
	unowned uint64
	// unnamed is one if the scans at the start have not found, or kept, all sockets and descriptors.
	unnamed uint64
	// unclosed is one if not all connections that are open at the end were found, or kept.
	unclosed uint64
	single   *output.Stream // takes all events, unless the format is FLAP's

	mu   sync.Mutex
	lost Account // losses before the writer
}

// Open attaches to the Pod: each call that ends from then on is written or counted as lost.
func Open(cfg *Config) (*Trace, error) {
	if cfg.Command != nil {
		if err := cfg.Command.Check(); err != nil {
			return nil, err
		}
	}
	t := newTrace(cfg)
	found, err := t.finder().Pod(cfg.PodUID)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, process.ErrNoProcess
	}
	var cgroup kernel.Cgroup
	for _, p := range found { // in a Pod that starts, some processes end at once
		if cgroup, err = kernel.FindCgroup(t.cfg.Proc, p.PID, t.cfg.PodUID); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if err := t.attach(cgroup, found); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// newTrace returns a trace whose BPF programs are not loaded yet.
func newTrace(cfg *Config) *Trace {
	t := &Trace{cfg: *cfg, calls: decode.Calls(cfg.Groups), containers: newSelection(cfg.Containers), out: output.NewWriter(cfg.output())}
	t.cfg.Proc = cmp.Or(t.cfg.Proc, "/proc")
	t.cfg.RingBytes = cmp.Or(t.cfg.RingBytes, DefaultRingBytes)
	t.cfg.FileScan = cmp.Or(t.cfg.FileScan, DefaultFileScan)
	t.single = t.out.Stream("")
	t.decoder = decode.New(decode.Config{
		Node: t.finder(), PodUID: cfg.PodUID, Calls: t.calls, TracksFiles: slices.Contains(cfg.Groups, decode.GroupFile) && cfg.MinLatency == 0,
		Timed: t.cfg.timed(), MinLatency: cfg.MinLatency,
	})
	return t
}

func (t *Trace) finder() process.Finder {
	return process.Finder{Root: t.cfg.Proc, NodeRoot: t.cfg.NodeRoot}
}

// attach begins to record the cgroup's processes, and reads the state of those that run already.
func (t *Trace) attach(cgroup kernel.Cgroup, found []process.Process) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	cfg := kernel.Config{
		Cgroup: cgroup, Calls: t.calls.Rows(), Timed: t.cfg.timed(), MinLatency: uint64(t.cfg.MinLatency), RingBytes: t.cfg.RingBytes, CPUs: cpus,
		Network: t.cfg.network(), Files: t.cfg.namesFiles(), Command: t.cfg.Command, ByContainer: len(t.cfg.Containers) > 0,
		Operations: decode.Operations(t.cfg.Groups), MoreResults: decode.RecordsMoreResults(t.cfg.Groups),
	}
	if cfg.Tracepoints, err = tracepointsOf(t.cfg.Groups); err != nil {
		return err
	}
	if t.netns, err = holdNetNS(t.cfg.NetNS); err != nil {
		return err
	}
	cfg.NetNS = t.netns.number
	if t.program, err = kernel.Load(&cfg); err != nil {
		return err
	}
	if t.rare, err = t.program.RareRing(); err != nil {
		return err
	}
	if err := t.decoder.ReadContainers(); err != nil && len(t.cfg.Containers) > 0 {
		return fmt.Errorf("select containers (without spec.containers all are traced): %w", err)
	}
	if found, err = t.selectProcesses(found); err != nil {
		return err
	}
	t.decoder.ReadFiles(t.cfg.namesFiles() || cfg.Tracepoints.UringMissing())
	t.decoder.Start()
	if err := t.program.Attach(); err != nil {
		return err
	}
	began := time.Now()
	if cfg.Network {
		if err := t.findOldSockets(); err != nil {
			return err
		}
	}
	if err := t.addProcesses(found, began); err != nil {
		return err
	}
	if cfg.Tracepoints.UringMissing() {
		t.ringsBefore = t.decoder.Rings()
	}
	return nil
}

// findOldSockets finds the sockets that are older than the trace. Too many of them, or too many open files on the node, do not
// keep it from beginning.
func (t *Trace) findOldSockets() error {
	found, err := t.program.Sockets(t.cfg.FileScan, func(*kernel.Socket) bool { return true })
	t.decoder.AddSockets(found.All)
	t.unowned = found.Unowned
	slow := errors.Is(err, iterator.ErrSlow)
	if slow || found.More {
		t.unnamed = 1
	}
	if !slow {
		return err
	}
	if t.cfg.needsOwners() {
		t.unowned++
	}
	return nil
}

// addProcesses reads the state of the processes that run already. If the node has too many open files to learn in time, since scans
// began, which descriptors an exec closes, those without an answer have no path after one.
func (t *Trace) addProcesses(found []process.Process, began time.Time) error {
	var kept kernel.KeptFiles
	if t.cfg.namesFiles() {
		var err error
		kept, err = t.program.KeptFiles(t.cfg.FileScan - time.Since(began))
		slow := errors.Is(err, iterator.ErrSlow)
		if slow || kept.More {
			t.unnamed = 1
		}
		if err != nil && !slow {
			return err
		}
	}
	for _, p := range found {
		t.decoder.AddProcess(p.PID, func(fd int32) bool {
			if kept.IsBeyond(uint32(p.PID), fd) {
				t.unnamed = 1
			}
			return kept.Has(uint32(p.PID), fd)
		})
	}
	return t.doubt()
}

// doubt tells the decoder what the processes have changed before their state was read: calls are recorded already. The state of later
// processes is read at their first event.
func (t *Trace) doubt() error {
	read := kernel.BootTime()
	for _, r := range t.program.Rings {
		_, err := r.Ahead(read, func(e *kernel.Record) bool {
			t.decoder.Doubt(e, read)
			return true
		})
		if err != nil {
			return err
		}
	}
	t.decoder.LookAhead(t.ahead)
	return nil
}

// ahead visits the records of all rings that were not decoded yet. A malformed one ends the trace when its turn comes.
func (t *Trace) ahead(until uint64, visit func(*kernel.Record) bool) bool {
	for _, r := range t.program.Rings {
		if all, err := r.Ahead(until, visit); !all || err != nil {
			return false
		}
	}
	return true
}

// Close detaches the trace and frees its memory.
func (t *Trace) Close() error {
	var errs []error
	if t.rare != nil {
		errs = append(errs, t.rare.Close())
		t.rare = nil
	}
	if t.program != nil {
		errs = append(errs, t.program.Close())
	}
	return errors.Join(append(errs, t.netns.close())...)
}
