package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Kind is a choice among the engines.
type Kind string

// Kinds. Their names are those of spec.engine.
const (
	// KindAuto takes BPF where the kernel and the rights allow it, and AF_PACKET elsewhere.
	KindAuto Kind = "auto"
	// KindBPF takes BPF alone: Open fails where it cannot be had.
	KindBPF Kind = "bpf"
	// KindAFPacket takes AF_PACKET alone.
	KindAFPacket Kind = "afpacket"
)

// How packets are taken, as Account.Engine has it.
const (
	ByTCX      = "tcx"
	ByClsact   = "clsact"
	ByAFPacket = "afpacket"
)

// New returns the engine of a kind. BPF needs CAP_SYS_ADMIN, and at clsact CAP_NET_ADMIN; AF_PACKET needs CAP_NET_RAW, and for
// another network namespace CAP_SYS_ADMIN.
func New(kind Kind) Engine { return &sessions{ways: waysOf(kind), create: createFile} }

// waysOf are those that an engine of a kind tries, in this order.
func waysOf(kind Kind) []way {
	switch kind {
	case KindAuto:
		return []way{byTCX, byClsact, bySockets}
	case KindBPF:
		return []way{byTCX, byClsact}
	default:
		return []way{bySockets}
	}
}

// tryRing is the memory of rings that nobody writes to.
const tryRing = 1 << 20

// Try finds out whether packets can be taken by BPF programs at ByTCX or ByClsact, in the network namespace of the calling
// thread: it does what a capture of all interfaces does, but for taking any packet, and takes it back.
func Try(by string) error {
	ways := map[string]way{ByTCX: byTCX, ByClsact: byClsact}
	if ways[by] == nil {
		return fmt.Errorf("%q is no way to attach programs", by)
	}
	s := &session{cfg: Config{RingBytes: tryRing}, netns: -1, wake: -1, maxTaps: maxTaps}
	s.defaults()
	s.rec = newRecorder(&s.cfg, s.log, createFile)
	return errors.Join(s.try(ways[by]), s.Close())
}

func (s *session) try(way way) error {
	if err := errors.Join(s.openNamespace(), s.openWaits()); err != nil {
		return err
	}
	links, err := s.links.list()
	if err != nil {
		return err
	}
	s.taker = way(s)
	return s.taker.prepare(links)
}

// Engine is a way to take packets from the kernel.
type Engine interface {
	// Open attaches to the interfaces of the target and returns when that is done: from then on every packet that
	// passes the filter is accounted for. The caller must call Run or Close on what it returns.
	Open(cfg *Config) (Capture, error)
}

// Capture is one capture that is attached.
type Capture interface {
	// Run moves packets to the file until ctx ends, a limit is reached or the file cannot be written, and returns
	// the final account. It may be called once and leaves nothing open. The cause of ctx decides the reason: a
	// deadline is ending.Duration, ending.ErrTargetGone is ending.TargetGone, anything else is ending.Stopped.
	Run(ctx context.Context) Result
	// Account returns the account as of the last flush. It is cheap and safe to call at any time from any goroutine.
	Account() Account
	// Close detaches without a final account, for a capture that is never run.
	Close() error
}

// Defaults of Config.
const (
	DefaultSnapLen   = 262144
	DefaultRingBytes = 32 << 20
	defaultFileMode  = 0o640
)

// Config says what to capture and where to write it. Zero values mean the defaults.
type Config struct {
	// NetNS is the target's network namespace, as from nodeproc.OpenNetNS; nil is the caller's own. It is used only
	// during Open, which duplicates what it needs.
	NetNS *os.File
	// Interfaces are names of interfaces; empty means all of the namespace, loopback too. Either way an interface
	// that appears later is captured from then on, if its name fits.
	Interfaces []string
	// Owner is the UID of what asked for the capture; what the kernel keeps for it is marked with that.
	Owner string
	// Filters holds a classic BPF program for each link type, as libpcap compiles it for that type. nil accepts every
	// packet. In a non-nil map, interfaces whose link type is missing are left out, with a note in the account.
	Filters map[pcapng.LinkType]bpfprog.Program
	// FilterText is the filter as the user wrote it, for the file's if_filter.
	FilterText string
	// SnapLen is the most bytes of a packet to keep; default DefaultSnapLen.
	SnapLen int
	// RingBytes is the memory of all rings together in bytes; default DefaultRingBytes. It is divided among the
	// interfaces that are there at Open (or named), loopback a third of another one's, at least 256 KiB to each, and those that
	// appear later take at most as much again; beyond that, 256 KiB each. At most 512 are captured at a time.
	RingBytes int
	// MaxBytes is the most bytes that the file may have, its final statistics included; zero means no limit. With
	// Rotate it does not end the capture.
	MaxBytes int64
	// MaxPackets is the number of packets after which the capture ends; zero means no limit.
	MaxPackets int64
	// Rotate, if not nil, makes a ring of files that keeps the newest packets.
	Rotate *Rotate
	// DiskFloor, if not nil, says how many bytes of a file system of total bytes are to stay free: rather than go
	// below, the capture ends with ending.DiskFull. Open fails with an error that disk.IsFull where it is so already.
	DiskFloor func(total uint64) uint64
	// FilesChanged, if not nil, is called by Run when the account names other files than before, and before anything
	// is done that would make what it named before wrong: who tells others which files there are tells it then.
	FilesChanged func()
	// Dir and Base name the file: Dir/Base.pcapng, and Dir/Base-0000000001.pcapng and so on in a ring. It must not exist.
	Dir  string
	Base string
	// FileMode is the mode of the file; default 0640.
	FileMode os.FileMode
	// Section is what the file says about itself.
	Section pcapng.Section
	// Description is the if_description of every interface, for example "shop/web-1 on node-a".
	Description string
	// Log receives what happens to interfaces; default: nothing is logged.
	Log *slog.Logger
}

// Result is the outcome of Run.
type Result struct {
	Reason  recording.Reason
	Account Account
	// Path is the newest file; the account names all. They hold only whole blocks, whatever the reason.
	Path string
	// Err explains ending.DiskFull and ending.Error; nil otherwise.
	Err error
}
