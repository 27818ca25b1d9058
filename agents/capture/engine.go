package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/sonde-operator/sonde/agents/capture/afpacket"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/capture/tc"
	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Kind selects backends.
type Kind string

// Kinds, as named in spec.engine.
const (
	// KindAuto uses BPF programs where the kernel and the capabilities allow it, and packet sockets elsewhere.
	KindAuto Kind = "auto"
	// KindBPF uses BPF programs only: Open fails where they are not available.
	KindBPF Kind = "bpf"
	// KindAFPacket uses packet sockets only.
	KindAFPacket Kind = "afpacket"
)

// candidate is a backend that an engine may use.
type candidate struct {
	name string
	new  func(*backend.Config) backend.Backend
}

var (
	tcx      = candidate{tc.TCX, func(c *backend.Config) backend.Backend { return tc.NewTCX(c) }}
	clsact   = candidate{tc.Clsact, func(c *backend.Config) backend.Backend { return tc.NewClsact(c) }}
	afPacket = candidate{afpacket.Name, func(c *backend.Config) backend.Backend { return afpacket.New(c) }}
)

// candidates returns the backends of a kind, the preferred one first.
func candidates(kind Kind) []candidate {
	switch kind {
	case KindAuto:
		return []candidate{tcx, clsact, afPacket}
	case KindBPF:
		return []candidate{tcx, clsact}
	default:
		return []candidate{afPacket}
	}
}

// New returns the engine of a kind. BPF programs need CAP_SYS_ADMIN, and at clsact CAP_NET_ADMIN. Packet sockets need
// CAP_NET_RAW, and CAP_SYS_ADMIN for another network namespace.
func New(kind Kind) Engine { return &engine{candidates: candidates(kind), create: record.CreateFile} }

// tryRing is the memory of rings that receive no packets.
const tryRing = 1 << 20

// Try returns an error if BPF programs at tc.TCX or tc.Clsact cannot capture packets in the calling thread's network
// namespace. It prepares a capture of all interfaces, which receives no packets, and closes it.
func Try(attachPoint string) error {
	points := map[string]candidate{tc.TCX: tcx, tc.Clsact: clsact}
	c, ok := points[attachPoint]
	if !ok {
		return fmt.Errorf("BPF programs cannot be attached at %q", attachPoint)
	}
	s := newSession(&Config{RingBytes: tryRing}, record.CreateFile)
	return errors.Join(s.try(c), s.Close())
}

// Engine opens captures.
type Engine interface {
	// Open attaches to the interfaces of the target and returns when that is done: from then on every packet that
	// passes the filter is accounted for. The caller must call Run or Close on the result.
	Open(cfg *Config) (Capture, error)
}

// Capture is one attached capture.
type Capture interface {
	// Run writes packets to the file until ctx ends, a limit is reached or the file cannot be written, and returns the
	// final account. It may be called once and leaves nothing open. The cause of ctx decides the reason: a deadline is
	// recording.Duration, recording.ErrTargetGone is recording.TargetGone, anything else is recording.Stopped.
	Run(ctx context.Context) Result
	// Account returns the account as of the last flush. It is cheap and safe to call at any time from any goroutine.
	Account() record.Account
	// Close detaches without a final account, for a capture that is never run.
	Close() error
}

// Defaults of Config.
const (
	DefaultSnapLen   = 262144
	DefaultRingBytes = 32 << 20
	defaultFileMode  = 0o640
)

// Config says what to capture and where to write it. Zero values mean the defaults. Fields without a comment are
// documented in record.Config.
type Config struct {
	// NetNS is the target's network namespace, as from process.Finder; nil is the caller's own. It is used only during
	// Open, which duplicates it.
	NetNS *os.File
	// NodeNetwork says that NetNS is the node's own, from which container runtimes move interfaces into Pods.
	NodeNetwork bool
	// Interfaces are names of interfaces; empty means all of the namespace, loopback too. Either way an interface that
	// appears later is captured from then on, if its name fits.
	Interfaces []string
	// Owner is the UID of the object that requested the capture. It marks objects that the capture may leave in the
	// kernel.
	Owner string
	// Filters holds a classic BPF program for each link type, as libpcap compiles it for that type. nil accepts every
	// packet. In a non-nil map, interfaces whose link type is missing are left out, with a note in the account.
	Filters map[pcapng.LinkType]bpfprog.Program
	// FilterText is the filter as the user wrote it, for the file's if_filter.
	FilterText string
	// SnapLen is the most bytes of a packet to keep; default DefaultSnapLen.
	SnapLen int
	// Processes, if not nil, makes each packet name the process that it belongs to. If that is not possible, the capture goes
	// on without, and the account says why.
	Processes *backend.Processes
	// RingBytes is the memory of all rings together in bytes; default DefaultRingBytes. The interfaces that exist at Open,
	// or are named, share it: loopback gets a third of another one's share, and each at least 256 KiB. Interfaces that
	// appear later get at most as much again together; beyond that, 256 KiB each. At most 512 are captured at a time.
	RingBytes int

	MaxBytes     int64
	MaxPackets   int64
	Rotate       *record.Rotate
	DiskFloor    func(total uint64) uint64
	FilesChanged func()
	Dir          string
	Base         string
	Section      pcapng.Section
	// FileMode is the mode of the file; default 0640.
	FileMode os.FileMode

	// Followed, if not nil, reports whether someone reads the file while it grows. Packets are then written sooner, and Complete is called
	// with times in nanoseconds since 1970: all packets up to such a time are in the file, or counted as lost. Both belong to Run.
	Followed func() bool
	Complete func(upTo uint64)

	// Description is the if_description of every interface, for example "shop/web-1 on node-a".
	Description string
	// Log receives changes of interfaces; default: nothing is logged.
	Log *slog.Logger
}

// withDefaults returns a copy whose zero values are replaced.
func (c Config) withDefaults() Config {
	if c.SnapLen <= 0 || c.SnapLen > DefaultSnapLen {
		c.SnapLen = DefaultSnapLen
	}
	if c.RingBytes <= 0 {
		c.RingBytes = DefaultRingBytes
	}
	if c.FileMode == 0 {
		c.FileMode = defaultFileMode
	}
	if c.Followed == nil {
		c.Followed = func() bool { return false }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// record returns the recorder's part of the configuration.
func (c *Config) record() *record.Config {
	options := 0
	if c.Processes != nil {
		options = pcapng.MaxProcessLen
	}
	return &record.Config{
		OptionsLen: options, SnapLen: c.SnapLen, MaxBytes: c.MaxBytes, MaxPackets: c.MaxPackets, Rotate: c.Rotate, DiskFloor: c.DiskFloor,
		FilesChanged: c.FilesChanged, Dir: c.Dir, Base: c.Base, FileMode: c.FileMode, Section: c.Section,
	}
}

// Result is the outcome of Run.
type Result struct {
	Reason  recording.Reason
	Account record.Account
	// Path is the newest file; the account names all. They hold only whole blocks, whatever the reason.
	Path string
	// Err explains recording.DiskFull and recording.Error; nil otherwise.
	Err error
}
