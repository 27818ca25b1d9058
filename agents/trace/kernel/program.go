package kernel

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/ring"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 -type record -type task -type kept_file -type cgroup_entry -type kind -type command_change -type tcp -type open_socket -type role -type side -type uring_op -type op_use -type op_field trace ../../../bpf/trace.bpf.c -- -I../../../bpf/headers -mcpu=v3 -Wall -Werror

// Sizes of bpf/trace.bpf.c.
const (
	maxPath    = 4096
	maxAddress = 128
	maxRecord  = HeadLen + maxOperation + maxAddress + 2*(maxPath+8)
	// maxOperation is the longest part of a record between its head and its address.
	maxOperation = 96
)

// MinRing is the smallest size of one CPU's ring in bytes. It holds several of the longest records.
const MinRing = 128 << 10

// Program is the BPF side of a trace, while it is attached.
type Program struct {
	// Objects are the loaded programs and maps.
	Objects *ebpf.Collection
	// Rings of the CPUs.
	Rings []Ring
	// TimesFaults says that the kernel writes a page fault's duration into its record when the fault has ended.
	TimesFaults bool

	// recorders are the names of the programs that record.
	recorders []string
	mapped    []*ring.Ring
	links     []link.Link
	// marks says that only processes with a mark are recorded.
	marks bool
}

// Config of a Program.
type Config struct {
	Cgroup Cgroup
	Calls  Rows
	// Timed measures durations.
	Timed bool
	// MinLatency leaves out calls that took less, in nanoseconds; it needs Timed.
	MinLatency uint64
	// RingBytes of all CPUs together.
	RingBytes   int
	CPUs        int
	Tracepoints Tracepoints
	// Network records the connections in the network namespace NetNS, or the Pod's processes' if NetNS is zero. The caller keeps
	// the namespace until Detach: the kernel gives the number of one that has ended to another Pod's.
	Network bool
	NetNS   uint32
	// Files allows KeptFiles.
	Files bool
	// Operations of io_urings that are recorded, if Tracepoints has them.
	Operations Operations
	// MoreResults records results of io_urings that are not the only ones of their operation.
	MoreResults bool
	// Command selects the processes to record; nil records all.
	Command *Command
	// ByContainer allows ExcludeCgroup.
	ByContainer bool
}

// programs returns the names of the recording programs in the order of their attachment. The program for calls is last:
// when a call is recorded, all other programs run already.
func (s *Config) programs() []string {
	all := append([]string{traceProgSondeFork, traceProgSondeExec, lastMarking}, s.Tracepoints.programs...)
	if s.Network {
		all = append(all, traceProgSondeState, traceProgSondeRetransmit, traceProgSondeResetSent, traceProgSondeResetReceived)
	}
	if s.Timed {
		all = append(all, traceProgSondeEnter)
		if s.Tracepoints.faultsEnd {
			all = append(all, traceProgSondeFaultEnd)
		}
	}
	return append(all, traceProgSondeExit)
}

// lastMarking is the last program that marks the processes of a command. The programs attached after it read the marks.
const lastMarking = traceProgSondeEnd

// iterators returns the names of the programs that Tasks, Sockets and markCommand run.
func (s *Config) iterators() []string {
	var all []string
	if s.ByContainer {
		all = append(all, traceProgSondeTasks)
	}
	if s.Command != nil {
		all = append(all, traceProgSondeMark)
	}
	if s.Files {
		all = append(all, traceProgSondeFiles)
	}
	if s.Network {
		all = append(all, traceProgSondeSockets)
	}
	return all
}

// constants returns the BPF programs' constants.
func (s *Config) constants(size int) map[string]any {
	all := map[string]any{
		traceVarCgroupId: s.Cgroup.id, traceVarCgroupLevel: s.Cgroup.depth, traceVarCgroupV1: s.Cgroup.v1, traceVarNodeLevel: s.Cgroup.level, traceVarRingMask: uint64(size - 1),
		traceVarTimed: s.Timed, traceVarMinLatency: s.MinLatency, traceVarCalls: s.Calls, traceVarOomByPid: s.Tracepoints.oomByPid,
		traceVarUringOps: s.Operations, traceVarUringMore: s.MoreResults, traceVarUringMissing: s.Tracepoints.UringMissing(),
		traceVarNetns: s.NetNS, traceVarOwnedOnly: s.Network && s.NetNS == 0, traceVarByContainer: s.ByContainer,
	}
	if s.Command != nil {
		maps.Copy(all, s.Command.constants())
	}
	return all
}

// Load loads the programs without attaching them. Before Linux 6.0 a map's value, here one CPU's ring, must be smaller
// than 4 MiB: Load then makes smaller rings than RingBytes.
func Load(s *Config) (*Program, error) {
	spec, err := loadTrace()
	if err != nil {
		return nil, fmt.Errorf("read BPF objects: %w", err)
	}
	for size := ring.Size(s.RingBytes, s.CPUs, MinRing); ; size /= 2 {
		p, err := s.loadWith(spec.Copy(), size)
		if size > MinRing && errors.Is(err, unix.E2BIG) {
			continue
		}
		if err != nil && s.Tracepoints.faultsEnd { // not every kernel supports fexit
			s.Tracepoints.faultsEnd = false
			p, err = s.loadWith(spec.Copy(), size)
		}
		if err != nil && s.Tracepoints.submission != "" { // another kernel's io_urings may differ
			s.Tracepoints.withoutUring()
			return s.loadWith(spec.Copy(), size)
		}
		return p, err
	}
}

// loadWith loads the programs with rings of size bytes.
func (s *Config) loadWith(spec *ebpf.CollectionSpec, size int) (*Program, error) {
	for name, value := range s.constants(size) {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	ring.Shape(spec.Maps[traceMapRings], s.CPUs, size, maxRecord)
	if !s.ByContainer {
		spec.Maps[traceMapExcluded].MaxEntries = 1
	}
	if s.Command == nil {
		spec.Maps[traceMapMarks].MaxEntries = 1
	}
	if s.Tracepoints.submission != "" {
		spec.Programs[traceProgSondeUringSubmit].AttachTo = s.Tracepoints.submission
	}
	p := &Program{recorders: s.programs(), marks: s.Command != nil}
	wanted := slices.Concat(p.recorders, s.iterators())
	for name := range spec.Programs {
		if !slices.Contains(wanted, name) {
			delete(spec.Programs, name)
		}
	}
	if !s.Network {
		delete(spec.Maps, traceMapOwners)
		delete(spec.Maps, traceMapMptcpOwners)
	}
	var err error
	if p.Objects, err = ebpf.NewCollection(spec); err != nil {
		return nil, explain(err)
	}
	if p.mapped, err = ring.Map(p.Objects.Maps[traceMapRings], s.CPUs, size, maxRecord); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	p.Rings = newRings(p.mapped)
	return p, nil
}

// Attach begins to record.
func (p *Program) Attach() error {
	for _, name := range p.recorders {
		l, err := link.AttachTracing(link.TracingOptions{Program: p.Objects.Programs[name]})
		if err != nil && name == traceProgSondeFaultEnd {
			continue // as in Load: the duration is then missing
		}
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, explain(err))
		}
		p.links = append(p.links, l)
		p.TimesFaults = p.TimesFaults || name == traceProgSondeFaultEnd
		if name == lastMarking && p.marks {
			if err := p.markCommand(); err != nil {
				return err
			}
		}
	}
	return p.verify()
}

// verify checks with the kernel that every link is attached.
func (p *Program) verify() error {
	for _, l := range p.links {
		info, err := l.Info()
		if err != nil {
			return fmt.Errorf("inspect an attached program: %w", err)
		}
		if info.Program == 0 {
			return errors.New("the kernel has detached a program: start the trace again")
		}
	}
	return nil
}

// Detach ends recording. A program that runs at that moment may still write its record.
func (p *Program) Detach() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// Missed returns how many runs the kernel skipped because the program was running on that CPU already.
func (p *Program) Missed() uint64 {
	var n uint64
	for _, name := range p.recorders {
		if name == traceProgSondeEnter || name == traceProgSondeFaultEnd {
			continue // its call is recorded, without a duration
		}
		if stats, err := p.Objects.Programs[name].Stats(); err == nil {
			n += stats.RecursionMisses
		}
	}
	return n
}

// Close detaches the programs and unloads them.
func (p *Program) Close() error {
	errs := []error{p.Detach(), ring.Unmap(p.mapped)}
	p.mapped, p.Rings = nil, nil
	p.Objects.Close()
	return errors.Join(errs...)
}

// explain adds a remedy to an error of the kernel.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: the probe needs CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: tracing needs Linux 5.12 or later with BTF (/sys/kernel/btf/vmlinux)", err)
	}
	return err
}

// Fill is how full the fullest CPU's ring is, from 0 to 1.
func (p *Program) Fill() float64 { return ring.Fullest(p.mapped) }

// RareLost returns how many rare events found no room in their ring, by kind.
func (p *Program) RareLost() (lost [16]uint64) {
	_ = p.Objects.Variables[traceVarRareLost].Get(&lost)
	return lost
}

// AIOLost returns how many operations of Linux AIO were submitted. None of them is recorded.
func (p *Program) AIOLost() (n uint64) {
	_ = p.Objects.Variables[traceVarAioLost].Get(&n)
	return n
}

// UringLost returns how many operations of io_urings were not recorded because the kernel's tracepoints for them, or the
// operations, are unknown.
func (p *Program) UringLost() (n uint64) {
	_ = p.Objects.Variables[traceVarUringLost].Get(&n)
	return n
}
