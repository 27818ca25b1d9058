package capture

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// errNoPrograms says that packets cannot be taken by BPF programs, and why.
var errNoPrograms = errors.New("packets cannot be taken by BPF programs")

// blocks takes packets by BPF programs, which write finished blocks into a ring for each CPU.
type blocks struct {
	*session
	attacher attacher
	programs *programs // nil before prepare

	live    []*blockTap
	ended   []*blockTap   // with the capture, but still attached
	slots   [maxTaps]bool // that are in use
	clock   wallClock
	refused bool   // nothing comes any more
	taken   uint64 // up to when all packets are taken, by the monotonic clock
	came    uint64 // when there was something in a ring, by the same
	pause   time.Duration
	heads   []uint64 // when the next block of each ring is to be taken; zero where there is none
	batch   batch
}

// byTCX and byClsact take packets by programs.
func byTCX(s *session) taker    { return &blocks{session: s, attacher: tcx{}} }
func byClsact(s *session) taker { return &blocks{session: s, attacher: newClsact(s.cfg.Owner)} }

func (b *blocks) name() string { return b.attacher.name() }

// prepare loads the programs of the link types that are there, and tries to attach one.
func (b *blocks) prepare(links []link) error {
	if err := b.tryPrepare(links); err != nil {
		return fmt.Errorf("%w: %w", errNoPrograms, err)
	}
	return nil
}

func (b *blocks) tryPrepare(links []link) (err error) {
	var wanted []int
	for i := range links {
		if !b.wants(&links[i]) {
			continue
		}
		if !links[i].plain() {
			return errHeader(&links[i])
		}
		wanted = append(wanted, links[i].index)
	}
	if err := b.attacher.fits(b.netns, wanted); err != nil {
		return err
	}
	if b.programs, err = newPrograms(b.cfg.RingBytes, b.rec.snapLen()); err != nil {
		return err
	}
	b.clock.set()
	loaded := false
	for _, lt := range []pcapng.LinkType{pcapng.LinkTypeEthernet, pcapng.LinkTypeRaw} {
		if b.expects(lt, links) {
			loaded = true
			if err := b.load(lt); err != nil {
				return err
			}
		}
	}
	if !loaded { // all interfaces are still to come
		if err := b.load(pcapng.LinkTypeEthernet); err != nil {
			return err
		}
	}
	return errors.Join(b.waits.add(b.programs.waker.FD()), b.attachOnce(links))
}

// expects reports whether interfaces of a link type are there to be captured.
func (b *blocks) expects(lt pcapng.LinkType, links []link) bool {
	return slices.ContainsFunc(links, func(l link) bool {
		own, ok := l.linkType()
		return ok && own == lt && !l.gone && b.wants(&l) && (b.cfg.Filters == nil || b.cfg.Filters[lt] != nil)
	})
}

// load loads the programs of a link type, which see nothing before they are attached.
func (b *blocks) load(lt pcapng.LinkType) error {
	filter, err := b.program(lt)
	if err != nil {
		return err
	}
	if err := b.programs.load(lt, filter, b.log); err != nil {
		return err
	}
	return errors.Join(b.programs.set(packetsVarClockOffset, b.clock.offset), b.programs.set(packetsVarTaking, true))
}

// attachOnce tries to attach a program, which knows of no interface yet, to the first one: mostly that is loopback.
func (b *blocks) attachOnce(links []link) error {
	if len(links) == 0 {
		return nil
	}
	a, err := b.attacher.attach(b.netns, links[0].index, b.programs.first.Programs[packetsProgSondeIn], nil)
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return nil // it has gone meanwhile
	}
	if err != nil {
		return err
	}
	return a.Close()
}

// errHeader says that packets of an interface begin with what is not to be in the file.
func errHeader(l *link) error {
	return fmt.Errorf("the packets of %s (hardware type %d) have a header that only the engine afpacket can take off", l.name, l.arp)
}

// tap implements taker.
func (b *blocks) tap(l *link, lt pcapng.LinkType) (tap, error) {
	if !l.plain() {
		return nil, errHeader(l)
	}
	if err := b.load(lt); err != nil {
		return nil, err
	}
	slot := slices.Index(b.slots[:], false)
	if slot < 0 {
		return nil, fmt.Errorf("%w: no more than %d interfaces at a time", errNoPrograms, len(b.slots))
	}
	b.slots[slot] = true
	t := &blockTap{blocks: b, index: l.index, lt: lt, loopback: l.loopback(), slot: uint32(slot)}
	t.before = b.programs.lost(t.slot)
	b.live = append(b.live, t)
	return t, nil
}

func (b *blocks) taps() int { return len(b.live) }

// pass implements taker.
func (b *blocks) pass() (time.Duration, error) {
	b.programs.waker.Clear()
	fill := ring.Fullest(b.programs.rings)
	horizon := ring.Horizon(b.programs.rings, func() uint64 { return now(unix.CLOCK_MONOTONIC) })
	until := horizon + b.clock.offset
	if b.refused {
		until = math.MaxUint64
	}
	if err := b.merge(until); err != nil {
		return 0, err
	}
	b.taken = horizon
	if fill > 0 {
		b.came = horizon
	}
	b.pause = ring.NextPause(b.pause, fill)
	quiet := b.pause == ring.Longest && isQuiet(b.came, horizon)
	pause := ring.Doze(b.programs.rings, b.pause, quiet)
	if quiet && pause > 0 {
		pause = recording.UntilNext(pause)
	}
	return pause, nil
}

// poll implements taker.
func (b *blocks) poll() error {
	for _, t := range b.live {
		t.countLost()
	}
	return b.follow()
}

// follow has the programs go on by the node's clock where somebody has set it. What was written by the old one is taken
// before.
func (b *blocks) follow() error {
	next := b.clock
	if !next.set() {
		return nil
	}
	b.log.Info("Following a clock that was set", "nanoseconds", int64(next.offset-b.clock.offset))
	if err := b.merge(math.MaxUint64); err != nil {
		return err
	}
	b.clock = next
	return b.programs.set(packetsVarClockOffset, b.clock.offset)
}

func (*blocks) failed(int) {}

// refuse implements taker.
func (b *blocks) refuse() error {
	b.refused = true
	if b.programs.first == nil {
		return nil
	}
	err := b.programs.set(packetsVarTaking, false)
	awaitPrograms()
	return err
}

// awaitPrograms returns when each program that ran when it was called has ended: programs at tc run where the kernel waits
// for them before it frees what they read, and so it does for this call.
func awaitPrograms() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(100 * time.Millisecond) // not with nohz_full; a program takes microseconds
	}
}

// settle implements taker.
func (b *blocks) settle() {
	if !slices.ContainsFunc(b.live, (*blockTap).done) {
		return
	}
	b.live = slices.DeleteFunc(b.live, func(t *blockTap) bool {
		if !t.done() {
			return false
		}
		t.countLost()
		b.slots[t.slot] = false
		if t.attached != nil {
			b.ended = append(b.ended, t)
		}
		return true
	})
}

func (b *blocks) close() error {
	var errs []error
	for _, t := range slices.Concat(b.live, b.ended) {
		errs = append(errs, t.detach())
	}
	b.live, b.ended = nil, nil
	errs = append(errs, b.attacher.close())
	if b.programs != nil {
		errs = append(errs, b.programs.close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close BPF programs: %w", err)
	}
	return nil
}
