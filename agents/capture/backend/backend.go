// Package backend is the contract between the capture engine and its backends, which read packets from the kernel.
//
// The engine follows interfaces that come and go. For each it opens a Source, and it calls Read until the capture ends. The
// backend encodes packets as pcapng blocks and gives them to a record.Recorder in batches.
package backend

import (
	"log/slog"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Backend reads packets from the kernel. All methods belong to the engine's goroutine.
type Backend interface {
	// Prepare allocates the memory and programs that the sources share, for the existing interfaces. Its error says why
	// this backend cannot capture them. It attaches nothing, and Close releases the allocations.
	Prepare(existing []links.Link) error
	// Open allocates a source for an interface whose link type is known. late says that the interface appeared after
	// the start of the capture.
	Open(l *links.Link, late bool) (Source, error)
	// Sources counts the open sources. A stopped source is open until its packets are read.
	Sources() int
	// Read gives packets to the recorder, the earliest first, and returns how long to wait before the next Read. A
	// watched descriptor that becomes readable ends the wait.
	Read() (wait time.Duration, err error)
	// ReadTo returns a time in nanoseconds since 1970: all packets up to it were given to the recorder, or counted as lost. It is zero
	// before the first Read.
	ReadTo() uint64
	// CountLost adds the kernel's counts of lost packets to the account.
	CountLost() error
	// HandleError is called for a watched descriptor that has an error.
	HandleError(fd int)
	// Shut stops the arrival of packets on all sources: the capture is over. The engine then stops each source.
	Shut() error
	// Reap closes stopped sources that have no packets left.
	Reap()
	// Close releases everything, also in the middle of a capture.
	Close() error
}

// Source reads the packets of one interface.
type Source interface {
	// Start lets packets in and accounts for them on i. unix.ENODEV or unix.ENXIO mean that the interface is gone.
	Start(i *record.Interface) error
	// Restore attaches a source again that others have detached, and reports whether they had: a process of the target
	// with CAP_NET_ADMIN can do so. An error means that it is not attached, or that this is unknown.
	Restore() (detached bool, err error)
	// Hidden reports whether a filter that has changed may have kept packets from a source. Changes come in their order.
	Hidden(f links.Filter) bool
	// Stop ends the arrival of packets and reads the final counts. Later calls of Read return the packets that are left.
	Stop() error
	// Discard closes a source that was not started.
	Discard() error
}

// Config is the part of a capture's configuration that its backend needs.
type Config struct {
	// NetNS is a file descriptor of the target's network namespace; -1 is the caller's own.
	NetNS int
	// Owner is the UID of the object that requested the capture. It marks objects that the capture may leave in the
	// kernel.
	Owner string
	// Interfaces are the names to capture; empty means all.
	Interfaces []string
	// Filters holds a program for each link type. A nil map accepts every packet.
	Filters map[pcapng.LinkType]bpfprog.Program
	// RingBytes is the memory of all rings together in bytes.
	RingBytes int
	// Recorder receives the packets.
	Recorder *record.Recorder
	// Watch adds a descriptor that ends the wait between two calls of Read when it becomes readable.
	Watch func(fd int) error
	// Processes, if not nil, makes each packet name the process that it belongs to.
	Processes *Processes
	// Log is not nil.
	Log *slog.Logger
}

// Processes says whose packets name their process.
type Processes struct {
	// Unavailable says why processes cannot be named; empty if they can.
	Unavailable string
	// PID is a process of the Pod.
	PID int
	// Cgroup is the number of the Pod's cgroup, and Level its depth; zero makes each process one of the Pod.
	Cgroup uint64
	Level  uint32
	// CgroupV1 says that it is in the hierarchy of the pids controller.
	CgroupV1 bool
	// PIDLevel is the depth of the node's PID namespace.
	PIDLevel uint32
	// Container returns the name of a process's container; empty if it is not known (yet).
	Container func(pid int) string
	// ScanTime is how long a scan of the node's open files may take, and how long all scans may before the capture begins; zero
	// means 5 s.
	ScanTime time.Duration
}

// Wants reports whether the capture includes an interface of this name.
func (c *Config) Wants(l *links.Link) bool {
	return len(c.Interfaces) == 0 || slices.Contains(c.Interfaces, l.Name)
}

// Filter returns the socket filter for a link type: the user's program, with "accept" meaning the snap length.
func (c *Config) Filter(lt pcapng.LinkType) (bpfprog.Program, error) {
	return Filter(c.Filters[lt], lt, c.Recorder.SnapLen())
}
