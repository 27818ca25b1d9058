package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/nodeproc"
	"github.com/sonde-operator/sonde/internal/tracefmt"
)

// DefaultRingBytes is the memory of all CPUs' rings together.
const DefaultRingBytes = 32 << 20

// Config says what to trace. Zero values mean the defaults.
type Config struct {
	// PodUID is the target's, one of whose processes must be there.
	PodUID string
	// Proc is where the node's processes are; default /proc.
	Proc string
	// Groups of calls to record.
	Groups []Group
	// Durations measures how long each call takes, which costs each call of the node's processes some nanoseconds more.
	Durations bool
	// MinLatency leaves out calls that took less.
	MinLatency time.Duration
	// RingBytes of memory for all CPUs; default DefaultRingBytes.
	RingBytes int
	// Write takes whole lines. An error ends the trace.
	Write func(lines []byte, events int) error
}

func (c *Config) timed() bool { return c.Durations || c.MinLatency > 0 }

// Account of a trace: seen = Written + Lost.
type Account struct {
	Written uint64
	// LostRing counts calls for which a CPU's ring had no room, LostRare other events, and LostRecursion calls at which
	// the kernel did not run the program.
	LostRing, LostRare, LostRecursion uint64
}

// Lost is all that is in no line.
func (a *Account) Lost() uint64 { return a.LostRing + a.LostRare + a.LostRecursion }

// Trace is one trace that is attached.
type Trace struct {
	cfg      Config
	calls    map[uint32]*call
	program  *program
	rare     *ringbuf.Reader
	resolver *resolver
	clock    bootClock
	account  Account

	record  tracefmt.Record
	path    []byte
	lines   []byte
	pending int
	queue   []ringbuf.Record // of rare, by time
}

// Open attaches to the Pod: each call that ends from then on is written or counted as lost.
func Open(cfg *Config) (*Trace, error) {
	t := &Trace{cfg: *cfg, calls: callsOf(cfg.Groups)}
	t.cfg.Proc = cmp.Or(t.cfg.Proc, "/proc")
	t.cfg.RingBytes = cmp.Or(t.cfg.RingBytes, DefaultRingBytes)
	t.resolver = newResolver(t.cfg.Proc)
	found, err := nodeproc.Finder{Root: t.cfg.Proc}.Pod(cfg.PodUID)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, nodeproc.ErrNoProcess
	}
	group, err := findCgroup(t.cfg.Proc, found[0].PID)
	if err != nil {
		return nil, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	t.program, err = load(&settings{
		group: group, calls: t.calls, timed: t.cfg.timed(), minLatency: uint64(cfg.MinLatency), ringBytes: t.cfg.RingBytes, cpus: cpus,
	})
	if err != nil {
		return nil, err
	}
	if t.rare, err = ringbuf.NewReader(t.program.objects.Rare); err != nil {
		return nil, errors.Join(fmt.Errorf("read rare events: %w", err), t.Close())
	}
	t.clock.set()
	if err := t.program.attach(t.cfg.timed()); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	for _, p := range found {
		t.resolver.of(uint32(p.PID), 0)
	}
	return t, nil
}

// The reader looks at the rings at a rhythm that follows the traffic.
const (
	shortest = time.Millisecond
	longest  = 50 * time.Millisecond
	// settle is how old an event must be to be written: those of other CPUs that are older are in their rings by then.
	settle = 2 * time.Millisecond
	// lineBuffer is how much text is handed on at a time.
	lineBuffer = 64 << 10
)

// Run writes events until ctx ends or a line cannot be written, and returns the final account.
func (t *Trace) Run(ctx context.Context) (Account, error) {
	pause := longest
	var err error
	for err == nil && ctx.Err() == nil {
		fill := t.fill()
		err = t.round(bootTime() - uint64(settle))
		switch {
		case fill > 0.1:
			pause = 0
		case fill > 0.01:
			pause = max(shortest, pause/2)
		default:
			pause = min(longest, max(shortest, pause*2))
		}
		if pause > 0 && err == nil {
			sleep(ctx, pause)
		}
	}
	err = errors.Join(err, t.program.detach())
	// A program that was running when it was detached may still be writing its record.
	time.Sleep(10 * time.Millisecond)
	if err == nil {
		err = t.round(^uint64(0))
	}
	t.count()
	return t.account, errors.Join(err, t.Close())
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (t *Trace) fill() float64 {
	most := 0.0
	for _, r := range t.program.rings {
		most = max(most, r.fill())
	}
	return most
}

// count reads what was lost.
func (t *Trace) count() {
	t.account.LostRing = 0
	for _, r := range t.program.rings {
		t.account.LostRing += r.lost.Load()
	}
	var rare [8]uint64
	if err := t.program.objects.RareLost.Get(&rare); err == nil {
		t.account.LostRare = 0
		for _, n := range rare {
			if slices.Contains(t.cfg.Groups, GroupProcess) {
				t.account.LostRare += n
			}
		}
	}
	t.account.LostRecursion = t.program.missed()
}

// round writes all events up to a time, in their order.
func (t *Trace) round(until uint64) error {
	if err := t.readRare(); err != nil {
		return err
	}
	heads := make([]event, len(t.program.rings))
	there := make([]bool, len(heads))
	for i, r := range t.program.rings {
		there[i] = r.next(&heads[i])
	}
	for {
		first := -1
		for i := range heads {
			if there[i] && heads[i].record.Time <= until && (first < 0 || heads[i].record.Time < heads[first].record.Time) {
				first = i
			}
		}
		before := until
		if first >= 0 {
			before = heads[first].record.Time
		}
		if err := t.writeRare(before); err != nil {
			return err
		}
		if first < 0 {
			break
		}
		if err := t.write(&heads[first]); err != nil {
			return err
		}
		r := t.program.rings[first]
		r.skip(&heads[first])
		if r.pos-r.tail.Load() > r.size/16 {
			r.free()
		}
		there[first] = r.next(&heads[first])
	}
	for _, r := range t.program.rings {
		r.free()
	}
	return t.flush()
}

// readRare takes what is in the ring of rare events.
func (t *Trace) readRare() error {
	t.rare.SetDeadline(time.Unix(1, 0)) // do not wait
	for {
		rec, err := t.rare.Read()
		if err != nil {
			if errors.Is(err, io.EOF) || isTimeout(err) {
				break
			}
			return fmt.Errorf("read rare events: %w", err)
		}
		t.queue = append(t.queue, rec)
	}
	slices.SortStableFunc(t.queue, func(a, b ringbuf.Record) int { return cmp.Compare(rareTime(a), rareTime(b)) })
	return nil
}

// writeRare writes the rare events up to a time.
func (t *Trace) writeRare(until uint64) error {
	n := 0
	for ; n < len(t.queue) && rareTime(t.queue[n]) <= until; n++ {
		var e event
		if !e.parse(t.queue[n].RawSample) {
			return errors.New("a record of the tracer is not whole: please report this with the probe's log")
		}
		if err := t.write(&e); err != nil {
			return err
		}
	}
	t.queue = slices.Delete(t.queue, 0, n)
	return nil
}

func (t *Trace) write(e *event) error {
	r := t.describe(e)
	if !t.wants(e) {
		return nil // it was needed to know what others mean
	}
	t.lines = tracefmt.AppendNDJSON(t.lines, r)
	t.pending++
	if len(t.lines) < lineBuffer {
		return nil
	}
	return t.flush()
}

// wants tells whether an event is of a group that is recorded: all calls are, what tells of processes need not be.
func (t *Trace) wants(e *event) bool {
	return traceKind(e.record.Kind) == traceKindKIND_CALL || slices.Contains(t.cfg.Groups, GroupProcess)
}

func (t *Trace) flush() error {
	if t.pending == 0 {
		return nil
	}
	err := t.cfg.Write(t.lines, t.pending)
	if err == nil {
		t.account.Written += uint64(t.pending)
	}
	t.lines, t.pending = t.lines[:0], 0
	return err
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

// bootClock makes wall-clock time of the kernel's time since boot, as it was when the trace began: a clock that is set
// meanwhile puts no event before the one that it follows.
type bootClock struct{ offset int64 }

func (c *bootClock) set() {
	var wall unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME, &wall) == nil {
		c.offset = wall.Nano() - int64(bootTime())
	}
}

func (c *bootClock) at(ns uint64) time.Time { return time.Unix(0, c.offset+int64(ns)) }

func bootTime() uint64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return uint64(ts.Nano())
}
