// Package tc is the capture backend that reads packets by BPF programs on each interface, at tcx (from Linux 6.6) or clsact
// (docs/adr/0011-packet-engine-bpf.md).
//
//	programs.go  programs with the filter in them write pcapng blocks into a ring per CPU (agents/node/ring)
//	attach.go    attaches them at tcx, and order.go checks that they stay the first there; clsact.go attaches at clsact
//	source.go    one interface: its programs, its slot for lost packets
//	tc.go        when to read, and up to which time
//	merge.go     the ring with the oldest block is next
package tc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Names of the backend in the account: where the programs are attached.
const (
	TCX    = "tcx"
	Clsact = "clsact"
)

// ErrUnavailable is wrapped by each error of Prepare.
var ErrUnavailable = errors.New("BPF programs cannot capture these packets")

// Backend reads packets from BPF programs, which write finished pcapng blocks into a ring for each CPU.
type Backend struct {
	cfg      *backend.Config
	attacher attacher
	programs *programs    // nil before Prepare
	names    *attribution // nil if packets do not name processes
	try      attachment   // of tryAttach

	sources []*source
	ended   []*source        // ended with the capture, but still attached
	slots   [ring.Kinds]bool // slots in use; each counts one interface's lost packets
	clock   wallClock
	shut    bool   // no more packets arrive
	readTo  uint64 // all packets up to this time of CLOCK_MONOTONIC were read
	arrived uint64 // when a ring last had a packet, by CLOCK_MONOTONIC
	counted uint64 // when packets were last counted by their process, by CLOCK_MONOTONIC
	pause   time.Duration
	heads   []uint64 // when the next block of each ring is due; zero if there is none
	batch   record.Batch
}

// NewTCX returns a backend at tcx. It needs CAP_SYS_ADMIN.
func NewTCX(cfg *backend.Config) *Backend { return &Backend{cfg: cfg, attacher: tcx{}} }

// NewClsact returns a backend at clsact. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
func NewClsact(cfg *backend.Config) *Backend {
	return &Backend{cfg: cfg, attacher: newClsact(cfg.Owner, cfg.Log)}
}

// Prepare implements backend.Backend. It loads the programs of the existing link types, and tries to attach one. Its error
// is ErrUnavailable, and ebpf.ErrNotSupported where the kernel lacks a feature.
func (b *Backend) Prepare(existing []links.Link) error {
	if err := b.prepare(existing); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

func (b *Backend) prepare(existing []links.Link) (err error) {
	var wanted []int
	for i := range existing {
		if !b.cfg.Wants(&existing[i]) {
			continue
		}
		if err := b.unfit(&existing[i]); err != nil {
			return err
		}
		wanted = append(wanted, existing[i].Index)
	}
	if err := b.attacher.check(b.cfg.NetNS, wanted); err != nil {
		return err
	}
	b.clock.set()
	if err := b.loadWithProcesses(existing); err != nil {
		return err
	}
	return errors.Join(b.cfg.Watch(b.programs.waker.FD()), b.tryAttach())
}

// loadWithProcesses loads the programs, with the names of processes if they are wanted and possible.
func (b *Backend) loadWithProcesses(existing []links.Link) error {
	if b.cfg.Processes == nil {
		return b.loadExpected(existing, nil)
	}
	var err error
	if why := b.cfg.Processes.Unavailable; why != "" {
		err = errors.New(why)
	}
	var ns namespace
	if err == nil {
		ns, err = identify(b.cfg.NetNS)
	}
	if err == nil {
		err = b.loadExpected(existing, processConstants(b.cfg.Processes, ns))
	}
	if err == nil {
		b.names, err = follow(b.cfg, b.programs.first)
	}
	if err == nil {
		return nil
	}
	b.cfg.Log.Warn("Capturing without the names of processes", "error", err)
	b.cfg.Recorder.SetProcesses(record.Processes{Message: explainProcesses(err).Error()})
	if b.programs != nil {
		if err := b.programs.close(); err != nil {
			return err
		}
	}
	return b.loadExpected(existing, nil)
}

// loadExpected loads the programs of the existing link types.
func (b *Backend) loadExpected(existing []links.Link, processes map[string]any) (err error) {
	if b.programs, err = newPrograms(b.cfg.RingBytes, b.cfg.Recorder.SnapLen()); err != nil {
		return err
	}
	b.programs.processes = processes
	loaded := false
	for _, lt := range []pcapng.LinkType{pcapng.LinkTypeEthernet, pcapng.LinkTypeRaw} {
		if b.expects(lt, existing) {
			loaded = true
			if err := b.load(lt); err != nil {
				return err
			}
		}
	}
	if !loaded { // no interface exists yet
		if err := b.load(pcapng.LinkTypeEthernet); err != nil {
			return err
		}
	}
	return nil
}

// expects reports whether the capture includes an existing interface of a link type.
func (b *Backend) expects(lt pcapng.LinkType, existing []links.Link) bool {
	return slices.ContainsFunc(existing, func(l links.Link) bool {
		own, ok := l.LinkType()
		return ok && own == lt && !l.Gone && b.cfg.Wants(&l) && (b.cfg.Filters == nil || b.cfg.Filters[lt] != nil)
	})
}

// load loads the programs of a link type. They receive no packets before they are attached.
func (b *Backend) load(lt pcapng.LinkType) error {
	filter, err := b.cfg.Filter(lt)
	if err != nil {
		return err
	}
	if err := b.programs.load(lt, filter, b.cfg.Log); err != nil {
		return err
	}
	return errors.Join(b.programs.set(packetsVarClockOffset, b.clock.offset), b.programs.set(packetsVarCapturing, true))
}

// loopbackIndex is the index of loopback in each network namespace (LOOPBACK_IFINDEX of net/net_namespace.h).
const loopbackIndex = 1

// tryAttach attaches a program to loopback. At tcx it stays until the capture's own program is there, or the capture ends. Other
// captures compare the number of changes with a list of programs, so a program that comes must be in that list before it goes.
func (b *Backend) tryAttach() error {
	nothing, err := newTry()
	if err != nil {
		return err
	}
	defer func() { _ = nothing.Close() }() // its descriptor is valid
	a, err := b.attacher.attach(b.cfg.NetNS, loopbackIndex, nothing, nil)
	if err != nil {
		return err
	}
	b.try = a
	if b.attacher.name() != TCX { // there the kernel announces each change with the name of the program
		return b.endTry()
	}
	return nil
}

// endTry detaches the program of tryAttach.
func (b *Backend) endTry() error {
	if b.try == nil {
		return nil
	}
	err := b.try.Close()
	b.try = nil
	return err
}

// unfit says why BPF programs cannot capture an interface. A VRF device is unfit only if the spec names it: otherwise the interfaces in it are
// captured, too, and have its packets.
func (b *Backend) unfit(l *links.Link) error {
	switch {
	case l.VRF && slices.Contains(b.cfg.Interfaces, l.Name):
		return fmt.Errorf("%s is a VRF device, whose packets only the engine afpacket gets: name the interfaces in it instead, or set this engine", l.Name)
	case !l.Plain():
		return fmt.Errorf("the packets of %s (hardware type %d) have a header that only the engine afpacket can strip", l.Name, l.HardwareType)
	}
	return nil
}

// Open implements backend.Backend.
func (b *Backend) Open(l *links.Link, _ bool) (backend.Source, error) {
	if err := b.unfit(l); err != nil {
		return nil, err
	}
	lt, _ := l.LinkType()
	if err := b.load(lt); err != nil {
		return nil, err
	}
	slot := slices.Index(b.slots[:], false)
	if slot < 0 {
		return nil, fmt.Errorf("%w: no more than %d interfaces at a time", ErrUnavailable, len(b.slots))
	}
	b.slots[slot] = true
	s := &source{b: b, index: l.Index, lt: lt, loopback: l.Loopback(), slot: uint32(slot)}
	s.before = b.programs.lost(s.slot)
	b.sources = append(b.sources, s)
	return s, nil
}

// Sources implements backend.Backend.
func (b *Backend) Sources() int { return len(b.sources) }

// Read implements backend.Backend.
func (b *Backend) Read() (time.Duration, error) {
	b.programs.waker.Clear()
	fill := ring.Fullest(b.programs.rings)
	horizon := ring.Horizon(b.programs.rings, func() uint64 { return backend.Now(unix.CLOCK_MONOTONIC) })
	until := horizon + b.clock.offset
	if b.shut {
		until = math.MaxUint64
	}
	if err := b.merge(until); err != nil {
		return 0, err
	}
	b.readTo = horizon
	if fill > 0 {
		b.arrived = horizon
	}
	b.pause = ring.NextInterval(b.pause, fill)
	quiet := b.pause == ring.MaxInterval && backend.IsQuiet(b.arrived, horizon)
	pause := ring.BeforeSleep(b.programs.rings, b.pause, quiet)
	if quiet && pause > 0 {
		pause = recording.UntilNext(pause)
	}
	return pause, nil
}

// ReadTo implements backend.Backend.
func (b *Backend) ReadTo() uint64 {
	if b.readTo == 0 {
		return 0
	}
	return b.readTo + b.clock.offset
}

// CountLost implements backend.Backend. It also follows the node's clock.
func (b *Backend) CountLost() error {
	for _, s := range b.sources {
		s.countLost()
	}
	if b.names != nil {
		b.names.wake()
		if now := backend.Now(unix.CLOCK_MONOTONIC); now-b.counted >= uint64(time.Second) {
			b.counted = now
			b.countProcesses()
		}
	}
	return b.followClock()
}

// countProcesses adds to the account how many packets name a process. A count that cannot be read is left as it was.
func (b *Backend) countProcesses() {
	counts, err := b.names.outcomes()
	if err != nil {
		return
	}
	p := record.Processes{Reasons: map[pcapng.ProcessReason]uint64{}, Message: b.names.scans.failure()}
	for _, r := range b.programs.rings {
		p.Named += r.Counter()
	}
	for _, r := range pcapng.ProcessReasons() {
		if n := counts[r]; n > 0 {
			p.Reasons[r] = n
		}
	}
	b.cfg.Recorder.SetProcesses(p)
}

// followClock gives the programs the node's time when the clock was set. Packets with the old time are read first.
func (b *Backend) followClock() error {
	next := b.clock
	if !next.set() {
		return nil
	}
	b.cfg.Log.Info("Following a clock that was set", "nanoseconds", int64(next.offset-b.clock.offset))
	if err := b.merge(math.MaxUint64); err != nil {
		return err
	}
	b.clock = next
	return b.programs.set(packetsVarClockOffset, b.clock.offset)
}

// HandleError implements backend.Backend.
func (*Backend) HandleError(int) {}

// Shut implements backend.Backend.
func (b *Backend) Shut() error {
	b.shut = true
	if b.programs.first == nil {
		return nil
	}
	err := b.programs.set(packetsVarCapturing, false)
	ring.AwaitPrograms()
	if b.names != nil {
		b.countProcesses()
	}
	return err
}

// Reap implements backend.Backend.
func (b *Backend) Reap() {
	if !slices.ContainsFunc(b.sources, (*source).done) {
		return
	}
	b.sources = slices.DeleteFunc(b.sources, func(s *source) bool {
		if !s.done() {
			return false
		}
		s.countLost()
		b.slots[s.slot] = false
		if s.attached != nil {
			b.ended = append(b.ended, s)
		}
		return true
	})
}

// How long programs stay attached at least if other captures are on the interface. Each capture lists an interface's programs every
// second, and takes a program that no list has shown for a gap. On a busy node the lists come later, and so do this capture's own
// checks: minChecks of them are due as well, but not after maxAttached.
const (
	minAttached = 3 * time.Second
	maxAttached = 30 * time.Second
	minChecks   = 3
)

// outlastLists waits until each other capture has listed this one's programs.
func (b *Backend) outlastLists() {
	for {
		var wait time.Duration
		for _, s := range slices.Concat(b.sources, b.ended) {
			if s.attached != nil && s.attached.beside() {
				wait = max(wait, s.keepFor(time.Duration(backend.Now(unix.CLOCK_MONOTONIC)-s.attachedAt)))
			}
		}
		if wait == 0 {
			return
		}
		time.Sleep(wait)
	}
}

// Close implements backend.Backend.
func (b *Backend) Close() error {
	b.outlastLists()
	var errs []error
	for _, s := range slices.Concat(b.sources, b.ended) {
		errs = append(errs, s.detach())
	}
	b.sources, b.ended = nil, nil
	errs = append(errs, b.endTry(), b.attacher.close())
	if b.names != nil {
		errs = append(errs, b.names.close())
		b.names = nil
	}
	if b.programs != nil {
		errs = append(errs, b.programs.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close BPF programs: %w", err)
	}
	return nil
}
