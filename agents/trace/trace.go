package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// DefaultRingBytes is the memory of all CPUs' rings together.
const DefaultRingBytes = 32 << 20

// Config says what to trace. Zero values mean the defaults.
type Config struct {
	// PodUID is the target's, one of whose processes must be there.
	PodUID string
	// Proc is where the node's processes are; default /proc.
	Proc string
	// NetNS is the number of the Pod's network namespace, all of whose connections are its own; zero where that is the
	// node's, and the Pod's connections are those of its processes.
	NetNS uint32
	// Groups of calls to record.
	Groups []Group
	// Containers whose processes alone are recorded, by name; empty is all. Names are known once a container is about to
	// start its program: what its runtime did before is held back until then.
	Containers []string
	// Command whose processes alone are recorded; nil is all.
	Command *Command
	// Durations measures how long each call takes, which costs each call of the node's processes some nanoseconds more.
	Durations bool
	// MinLatency leaves out calls that took less.
	MinLatency time.Duration
	// RingBytes of memory for all CPUs; default DefaultRingBytes.
	RingBytes int
	// MaxEvents is the number of events after which the trace ends; zero means no limit.
	MaxEvents uint64
	// Out is where JSON lines go; not for FLAP's.
	Out Sink
	// Flap, if not nil, has the lines in FLAP's format instead: a sink for each of its sources (tracefmt.FlapSource).
	// What is no call has no lines there. It measures durations.
	Flap map[string]Sink
	// Binary hands Out the records as the kernel wrote them (struct record of bpf/trace.bpf.c), and makes nothing of them:
	// what reading costs without the text, for make bench.
	Binary bool
}

// Sink takes events' lines. *File is one. None of its methods is called once an error has ended the trace, but Flush and Pending.
type Sink interface {
	// Write takes the whole lines of so many events, of which all have as many: all of them, or as many events as it returns
	// and why it took no more, which ends the trace.
	Write(lines []byte, events int) (taken int, err error)
	// Flush has what was taken where it belongs soon or, if it is to wait, when it returns. An error ends the trace.
	Flush(wait bool) error
	// Pending is how many of the events that it took are not where they belong: not yet or, after an error, never.
	Pending() uint64
}

func (c *Config) timed() bool { return c.Durations || c.MinLatency > 0 || c.Flap != nil }

// network records connections, and what sockets are called: FLAP has neither.
func (c *Config) network() bool { return c.Flap == nil && slices.Contains(c.Groups, GroupNetwork) }

// Account of a trace: seen = Written + Lost.
type Account struct {
	Written uint64
	// LostRing counts calls and page faults for which a CPU's ring had no room, LostRare other events, LostRecursion calls at which
	// the kernel did not run the program, and LostWriter events that could not be written (disk full).
	LostRing, LostRare, LostRecursion, LostWriter uint64
	// LostCompat counts the calls of 32-bit programs, which are not recorded: all that there were.
	LostCompat uint64
	// LostCalls are LostRing and LostRare by the name of the call or event; only when the trace has ended.
	LostCalls map[string]uint64
	// BeyondLimit counts events that came after MaxEvents or the file's limit was reached. They are not lost.
	BeyondLimit uint64
}

// Lost is all that is in no line.
func (a *Account) Lost() uint64 {
	return a.LostRing + a.LostRare + a.LostRecursion + a.LostWriter + a.LostCompat
}

// Result is the outcome of Run.
type Result struct {
	Reason  recording.Reason
	Account Account
	// Err explains DiskFull and Error; nil otherwise.
	Err error
}

// Trace is one trace that is attached.
type Trace struct {
	cfg      Config
	calls    *callTable
	program  *program
	rare     *ringbuf.Reader
	resolver *resolver
	// named says that the trace sees all that gives descriptors and working directories their names, and takes them away.
	named  bool
	only   selection
	clock  bootClock
	end    recording.Reason // empty while lines are written
	endErr error

	mu      sync.Mutex
	account Account

	record  tracefmt.Record
	taken   uint64 // events that sinks took
	path    []byte
	texts   keptTexts
	encoder tracefmt.Encoder
	pending uint64             // events of all streams
	streams map[string]*stream // by source; of JSON lines it is empty
	json    *stream            // that one, or of records
	queue   []ringbuf.Record   // of rare, by time
	open    map[flow]*traceOpenSocket
}

// Open attaches to the Pod: each call that ends from then on is written or counted as lost.
func Open(cfg *Config) (*Trace, error) {
	t := &Trace{
		cfg: *cfg, calls: callsOf(cfg.Groups), named: slices.Contains(cfg.Groups, GroupFile) && cfg.MinLatency == 0, only: newSelection(cfg.Containers),
	}
	if cfg.Command != nil {
		if err := cfg.Command.check(); err != nil {
			return nil, err
		}
	}
	t.cfg.Proc = cmp.Or(t.cfg.Proc, "/proc")
	t.cfg.RingBytes = cmp.Or(t.cfg.RingBytes, DefaultRingBytes)
	t.resolver = newResolver(t.cfg.Proc)
	t.streams = t.cfg.streams()
	t.json = t.streams[""]
	found, err := process.Finder{Root: t.cfg.Proc}.Pod(cfg.PodUID)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, process.ErrNoProcess
	}
	var group cgroup
	for _, p := range found { // of a Pod that is just starting, some end at once
		if group, err = findCgroup(t.cfg.Proc, p.PID); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if err := t.attach(group, found); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// attach begins to record what the cgroup's processes do, and learns of those that are there.
func (t *Trace) attach(group cgroup, found []process.Process) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	s := settings{
		group: group, calls: t.calls, timed: t.cfg.timed(), minLatency: uint64(t.cfg.MinLatency), ringBytes: t.cfg.RingBytes, cpus: cpus,
		network: t.cfg.network(), netns: t.cfg.NetNS, command: t.cfg.Command, byContainer: len(t.cfg.Containers) > 0,
	}
	if s.further, err = furtherOf(t.cfg.Groups); err != nil {
		return err
	}
	if t.program, err = load(&s); err != nil {
		return err
	}
	if t.rare, err = ringbuf.NewReader(t.program.objects.Maps[traceMapRare]); err != nil {
		return fmt.Errorf("read rare events: %w", err)
	}
	if found, err = t.settleAll(found); err != nil {
		return err
	}
	t.clock.set()
	if err := t.program.attach(); err != nil {
		return err
	}
	if s.network {
		if err := t.nameSockets(); err != nil {
			return err
		}
	}
	for _, p := range found {
		t.resolver.of(uint32(p.PID), 0)
	}
	return nil
}

// Close lets go of everything.
func (t *Trace) Close() error {
	var errs []error
	if t.rare != nil {
		errs = append(errs, t.rare.Close())
		t.rare = nil
	}
	if t.program != nil {
		errs = append(errs, t.program.close())
	}
	return errors.Join(errs...)
}
