package trace

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

//go:generate go tool -modfile=../../hack/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 -type record -type seen -type kind -type turn -type tcp -type open_socket -type role -type side trace ../../bpf/trace.bpf.c -- -I../../bpf/headers -mcpu=v3 -Wall -Werror

// Sizes that the program has, too (bpf/trace.bpf.c).
const (
	maxPath    = 4096
	maxAddress = 128
	maxRecord  = recordLen + 6*8 + maxAddress + 2*(maxPath+8)
)

// minRing is the least size of one CPU's ring, in bytes: some of the longest records.
const minRing = 128 << 10

// program is the BPF side of a trace, while it is attached.
type program struct {
	objects *ebpf.Collection
	// attached are the names of its programs that record.
	attached []string
	mapped   []*ring.Ring
	rings    []cpuRing
	links    []link.Link
	// marks says that processes of a command are to be marked.
	marks bool
	// timesFaults says that records of page faults are given their durations.
	timesFaults bool
}

// settings of a program.
type settings struct {
	group cgroup
	calls *callTable
	// timed measures durations; minLatency leaves out calls that took less, in nanoseconds.
	timed      bool
	minLatency uint64
	// ringBytes of all CPUs together.
	ringBytes int
	cpus      int
	further   further
	// network records connections: those of the namespace with this number, or where the Pod has none of its own, and
	// this is zero, those of its processes.
	network bool
	netns   uint32
	// command whose processes alone are recorded; nil records all. byContainer has cgroups left out.
	command     *Command
	byContainer bool
}

// programs are those that record, in an order in which no call that is recorded lacks what belongs to it. What nobody has
// asked for is not loaded.
func (s *settings) programs() []string {
	all := append([]string{traceProgSondeFork, traceProgSondeExec, lastMarking}, s.further.programs...)
	if s.network {
		all = append(all, traceProgSondeState, traceProgSondeRetransmit, traceProgSondeResetSent, traceProgSondeResetReceived)
	}
	if s.timed {
		all = append(all, traceProgSondeEnter)
		if s.further.faultsEnd {
			all = append(all, traceProgSondeFaulted)
		}
	}
	return append(all, traceProgSondeExit)
}

// lastMarking is the last of the programs that mark the processes of a command; those behind it ask for marks.
const lastMarking = traceProgSondeGone

// iterators are what beside the programs that record has to be loaded.
func (s *settings) iterators() []string {
	var all []string
	if s.byContainer {
		all = append(all, traceProgSondeTasks)
	}
	if s.command != nil {
		all = append(all, traceProgSondeChoose)
	}
	if s.network {
		all = append(all, traceProgSondeSockets)
	}
	return all
}

// constants of the programs.
func (s *settings) constants(size int) map[string]any {
	var rows [len(traceCalls{})]traceRow
	for n, c := range s.calls {
		if c != nil {
			rows[n] = c.row()
		}
	}
	all := map[string]any{
		traceVarCgroupId: s.group.id, traceVarCgroupLevel: s.group.depth, traceVarCgroupV1: s.group.v1, traceVarNodeLevel: s.group.level, traceVarRingMask: uint64(size - 1),
		traceVarTimed: s.timed, traceVarMinLatency: s.minLatency, traceVarCalls: rows, traceVarOomByPid: s.further.oomByPid,
		traceVarNetns: s.netns, traceVarOwnedOnly: s.network && s.netns == 0, traceVarByContainer: s.byContainer,
	}
	if s.command != nil {
		maps.Copy(all, s.command.constants())
	}
	return all
}

// load loads the programs, which see nothing yet. Before Linux 6.0 no map can hold values of 4 MiB or more, each of which
// is one CPU's ring: there the rings are smaller than what was asked for.
func load(s *settings) (*program, error) {
	spec, err := loadTrace()
	if err != nil {
		return nil, fmt.Errorf("read BPF objects: %w", err)
	}
	for size := ring.Size(s.ringBytes, s.cpus, minRing); ; size /= 2 {
		p, err := s.loadWith(spec.Copy(), size)
		if size > minRing && errors.Is(err, unix.E2BIG) {
			continue
		}
		if err != nil && s.further.faultsEnd { // not every kernel lets programs watch its functions
			s.further.faultsEnd = false
			return s.loadWith(spec.Copy(), size)
		}
		return p, err
	}
}

// loadWith has rings of size bytes.
func (s *settings) loadWith(spec *ebpf.CollectionSpec, size int) (*program, error) {
	for name, value := range s.constants(size) {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	ring.Shape(spec.Maps[traceMapRings], s.cpus, size, maxRecord)
	if !s.byContainer {
		spec.Maps[traceMapLeftOut].MaxEntries = 1
	}
	if s.command == nil {
		spec.Maps[traceMapMarks].MaxEntries = 1
	}
	p := &program{attached: s.programs(), marks: s.command != nil}
	wanted := slices.Concat(p.attached, s.iterators())
	for name := range spec.Programs {
		if !slices.Contains(wanted, name) {
			delete(spec.Programs, name)
		}
	}
	if !s.network {
		delete(spec.Maps, traceMapMakers)
	}
	var err error
	if p.objects, err = ebpf.NewCollection(spec); err != nil {
		return nil, explain(err)
	}
	if p.mapped, err = ring.Map(p.objects.Maps[traceMapRings], s.cpus, size, maxRecord); err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.rings = ringsOf(p.mapped)
	return p, nil
}

// traceCalls is the table of calls, for its length.
type traceCalls [512]traceRow

// attach begins to record.
func (p *program) attach() error {
	for _, name := range p.attached {
		l, err := link.AttachTracing(link.TracingOptions{Program: p.objects.Programs[name]})
		if err != nil && name == traceProgSondeFaulted {
			continue // as in load
		}
		if err != nil {
			return fmt.Errorf("attach %s: %w", name, explain(err))
		}
		p.links = append(p.links, l)
		p.timesFaults = p.timesFaults || name == traceProgSondeFaulted
		if name == lastMarking && p.marks {
			if err := p.choose(); err != nil {
				return err
			}
		}
	}
	return p.verify()
}

// verify asks the kernel whether every link is there.
func (p *program) verify() error {
	for _, l := range p.links {
		info, err := l.Info()
		if err != nil {
			return fmt.Errorf("look at an attached program: %w", err)
		}
		if info.Program == 0 {
			return errors.New("a program is attached to nothing")
		}
	}
	return nil
}

// detach ends recording: when it returns no program runs any more that may still write.
func (p *program) detach() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	p.links = nil
	return errors.Join(errs...)
}

// missed counts what the kernel did not run because the program was running on that CPU already.
func (p *program) missed() uint64 {
	var n uint64
	for _, name := range p.attached {
		if name == traceProgSondeEnter || name == traceProgSondeFaulted {
			continue // what it measures is recorded, without a duration
		}
		if stats, err := p.objects.Programs[name].Stats(); err == nil {
			n += stats.RecursionMisses
		}
	}
	return n
}

func (p *program) close() error {
	errs := []error{p.detach(), ring.Unmap(p.mapped)}
	p.mapped, p.rings = nil, nil
	p.objects.Close()
	return errors.Join(errs...)
}

// explain says what to do about what kernels refuse.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: the probe needs CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("%w: tracing needs Linux 5.12 or later with BTF (/sys/kernel/btf/vmlinux)", err)
	}
	return err
}
