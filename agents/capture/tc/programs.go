package tc

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 -type interface packets ../../../bpf/packets.bpf.c -- -I../../../bpf/headers -mcpu=v3 -Wall -Werror
//go:generate go tool -modfile=../../../hack/tools/go.mod bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64,arm64 -type process -type holding -type name named ../../../bpf/packets.bpf.c -- -I../../../bpf/headers -mcpu=v3 -Wall -Werror -DPROCESSES

const (
	// filterFunction is the programs' function that the filter replaces.
	filterFunction = "accepts"
	// stateMap holds the programs' variables.
	stateMap = ".bss"
	// tcNext is NEXT of bpf/packets.bpf.c: a packet goes on as if the program were not there.
	tcNext = -1
	// lowIndex is LOW_INDEX of bpf/packets.bpf.c.
	lowIndex = 4096
	// minCPURing is the least size of one CPU's ring, in bytes.
	minCPURing = ringmemory.MinCPURing
)

// programs are the BPF side of a capture: a pair of programs for each link type, and the maps that all share. The kernel
// frees them when they are closed and detached.
type programs struct {
	cpus, size int // number of rings, and the bytes of each
	snapLen    uint32
	first      *ebpf.Collection // has the maps
	rings      []*ring.Ring
	waker      *ring.Waker
	processes  map[string]any // constants of a capture that names processes; nil if it does not
	of         map[pcapng.LinkType]*ebpf.Collection
	create     func(*ebpf.CollectionSpec, ebpf.CollectionOptions) (*ebpf.Collection, error) // tests replace it
}

// shared are the maps that all programs share.
var shared = append([]string{packetsMapRings, packetsMapWake, packetsMapLow, packetsMapHigh, namedMapOwners, stateMap}, processMaps...)

// newPrograms returns programs whose rings have ringBytes bytes in total, for packets of at most snapLen bytes. It
// loads nothing yet.
func newPrograms(ringBytes int, snapLen uint32) (*programs, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	return programsFor(cpus, ringBytes, snapLen)
}

// programsFor is newPrograms for a number of CPUs.
func programsFor(cpus, ringBytes int, snapLen uint32) (*programs, error) {
	if cpus > ringmemory.MaxCPUs {
		return nil, fmt.Errorf("this node can have %d CPUs, and the probe's memory has room for the rings of %d: use engine afpacket", cpus, ringmemory.MaxCPUs)
	}
	size := ring.Size(ringBytes, cpus, minCPURing)
	// A packet of more than half a ring would seldom find room.
	return &programs{
		cpus: cpus, size: size, snapLen: min(snapLen, uint32(size/2)), of: map[pcapng.LinkType]*ebpf.Collection{}, create: ebpf.NewCollectionWithOptions,
	}, nil
}

// load loads the pair of programs for a link type with its filter, and attaches nothing. Later calls do nothing.
func (p *programs) load(lt pcapng.LinkType, filter bpfprog.Program, log *slog.Logger) error {
	if p.of[lt] != nil {
		return nil
	}
	inline := true
	for {
		loaded, err := p.loadWith(filter, lt, inline)
		// A filter that is too complex for the verifier as a part of the programs may pass as a function.
		if inline && (errors.Is(err, errNoInline) || isRefused(err)) {
			log.Info("Loading the filter as a function only", "linkType", lt, "error", err)
			inline = false
			continue
		}
		if errors.Is(err, unix.E2BIG) && p.first == nil && p.size > minCPURing {
			p.size /= 2 // before Linux 6.0 no map can have values of 4 MiB; each value is a ring
			continue
		}
		if err != nil {
			return explain(err)
		}
		p.of[lt] = loaded
		if p.first != nil {
			return nil
		}
		p.first = loaded
		if p.rings, err = ring.Map(loaded.Maps[packetsMapRings], p.cpus, p.size, p.longest()); err != nil {
			return err
		}
		p.waker, err = ring.NewWaker(loaded.Maps[packetsMapWake])
		return err
	}
}

// errNoInline says that a filter must be a function.
var errNoInline = errors.New("the filter cannot be inlined")

// specWith returns the programs with a filter: as a function, and with inline also at the beginning of each program.
func specWith(objects func() (*ebpf.CollectionSpec, error), filter bpfprog.Program, inline bool) (*ebpf.CollectionSpec, error) {
	spec, err := objects()
	if err != nil {
		return nil, fmt.Errorf("read BPF objects: %w", err)
	}
	for name, direction := range map[string]ebpffilter.Option{packetsProgSondeIn: ebpffilter.AtIngress(), packetsProgSondeOut: ebpffilter.AtEgress()} {
		body, err := ebpffilter.Translate(filter, direction)
		if err != nil {
			return nil, err
		}
		program := spec.Programs[name]
		if err := ebpffilter.Replace(program, filterFunction, body); err != nil {
			return nil, err
		}
		if !inline {
			continue
		}
		if err := ebpffilter.Inline(program, filterFunction, filter, tcNext, direction); err != nil {
			return nil, fmt.Errorf("%w: %w", errNoInline, err)
		}
	}
	return spec, nil
}

// longest returns the most bytes of a packet's pcapng block.
func (p *programs) longest() int {
	n := pcapng.PacketLen(int(p.snapLen))
	if p.processes != nil {
		n += pcapng.MaxProcessLen
	}
	return n
}

func (p *programs) loadWith(filter bpfprog.Program, lt pcapng.LinkType, inline bool) (*ebpf.Collection, error) {
	objects := loadPackets
	if p.processes != nil {
		objects = loadNamed
	}
	spec, err := specWith(objects, filter, inline)
	if err != nil {
		return nil, err
	}
	constants := map[string]any{
		packetsVarSnapLen: p.snapLen, packetsVarEthernet: lt == pcapng.LinkTypeEthernet, packetsVarRingMask: uint64(p.size - 1),
		packetsVarInlined: inline,
	}
	maps.Copy(constants, p.processes)
	if err := p.leaveOut(spec); err != nil {
		return nil, err
	}
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	ring.Shape(spec.Maps[packetsMapRings], p.cpus, p.size, p.longest())
	spec.Maps[packetsMapWake].MaxEntries = max(spec.Maps[packetsMapWake].MaxEntries, uint32(os.Getpagesize())) // arm64 may have pages of 64 KiB
	var options ebpf.CollectionOptions
	if p.first != nil {
		options.MapReplacements = maps.Clone(p.first.Maps)
		maps.DeleteFunc(options.MapReplacements, func(name string, _ *ebpf.Map) bool { return !slices.Contains(shared, name) })
	}
	return p.create(spec, options)
}

// leaveOut removes what is not needed: the first programs for interfaces bring those that follow processes.
func (p *programs) leaveOut(spec *ebpf.CollectionSpec) error {
	if p.processes == nil {
		return nil
	}
	spec.Maps[namedMapOutcomes].MaxEntries = uint32(p.cpus)
	if p.first != nil {
		maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return slices.Contains(hooks, name) })
		return nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return explainProcesses(fmt.Errorf("read the kernel's types: %w", err))
	}
	leaveOutIOUring(spec.Programs, kernel)
	return nil
}

// set changes a variable of the programs.
func (p *programs) set(name string, value any) error {
	if err := p.first.Variables[name].Set(value); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

// addInterface makes the programs capture an interface. number is its ID in the file; slot counts its lost packets.
func (p *programs) addInterface(index int, number, slot uint32) error {
	return p.putInterface(index, packetsInterface{Number: number, Slot: slot + 1})
}

// removeInterface makes the programs ignore an interface.
func (p *programs) removeInterface(index int) error {
	return p.putInterface(index, packetsInterface{})
}

func (p *programs) putInterface(index int, value packetsInterface) error {
	name := packetsMapLow
	if index >= lowIndex {
		name = packetsMapHigh
	}
	m, key := p.first.Maps[name], uint32(index)
	var err error
	if name == packetsMapHigh && value.Slot == 0 {
		err = m.Delete(key)
	} else {
		err = m.Put(key, value)
	}
	if err != nil {
		return fmt.Errorf("update the programs' map of interfaces: %w", err)
	}
	return nil
}

// lost returns how many packets of the slot's interface found no room.
func (p *programs) lost(slot uint32) (n uint64) {
	for _, r := range p.rings {
		n += r.LostOf(slot)
	}
	return n
}

func (p *programs) close() error {
	err := ring.Unmap(p.rings)
	p.rings = nil
	if p.waker != nil {
		err = errors.Join(err, p.waker.Close())
	}
	for _, c := range p.of {
		c.Close()
	}
	p.of, p.first = nil, nil
	return err
}

// explain adds a remedy to an error of the kernel.
func explain(err error) error {
	if errors.Is(err, os.ErrPermission) && !isRefused(err) {
		return fmt.Errorf("%w: the probe needs CAP_SYS_ADMIN, and at clsact CAP_NET_ADMIN", err)
	}
	return err
}

// isRefused reports whether the verifier has rejected a program. That error is also "permission denied", but
// capabilities do not help.
func isRefused(err error) bool {
	var refused *ebpf.VerifierError
	return errors.As(err, &refused)
}
