package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
)

// Cgroup identifies a Pod's cgroup by the number of its kernfs node.
type Cgroup struct {
	id    uint64
	depth uint32
	// v1 says that it is in the pids controller's hierarchy, because the host has cgroup v1.
	v1 bool
	// level is the depth of the node's PID namespace, in which this process runs.
	level uint32
}

// ID returns the number of the cgroup's kernfs node.
func (c Cgroup) ID() uint64 { return c.id }

// Depth returns how many cgroups are above it.
func (c Cgroup) Depth() uint32 { return c.depth }

// V1 reports whether it is in the hierarchy of the pids controller.
func (c Cgroup) V1() bool { return c.v1 }

// PIDLevel returns the depth of the node's PID namespace.
func (c Cgroup) PIDLevel() uint32 { return c.level }

// errNoCgroup: the process is in no Pod's cgroup, or has ended.
var errNoCgroup = errors.New("the process is in no cgroup of a Pod")

// FindCgroup finds the cgroup of the Pod uid from one of its processes. proc is the node's /proc. It asks the kernel by BPF,
// because a process in a cgroup namespace does not see the host's cgroup mounts.
func FindCgroup(proc string, pid int, uid string) (Cgroup, error) {
	file := proc + "/" + strconv.Itoa(pid) + "/cgroup"
	before, err := os.ReadFile(file)
	if err != nil {
		return Cgroup{}, fmt.Errorf("read cgroups of process %d: %w", pid, err)
	}
	// A node may have both versions' hierarchies, with its Pods in either.
	c, in := process.ParseCgroup(pidsLine(before))
	v1 := in && c.PodUID == uid
	levels, err := levelsOf(pid, v1)
	if err != nil {
		return Cgroup{}, err
	}
	// A later process may have got the PID before the levels were read. Then this second reading differs.
	after, err := os.ReadFile(file)
	if err != nil {
		return Cgroup{}, fmt.Errorf("read cgroups of process %d: %w", pid, err)
	}
	found, ok := podLevel(levels, uid)
	if c, in := process.ParseCgroup(after); !ok || !in || c.PodUID != uid {
		return Cgroup{}, fmt.Errorf("process %d: %w", pid, errNoCgroup)
	}
	return Cgroup{id: found.Cgroup, depth: found.Depth, v1: v1, level: found.PidLevel}, nil
}

// podLevel finds the Pod's cgroup among the levels of a process. It searches from the root, because a container can name
// cgroups below its own as it likes. It returns false if the root is missing: the kernel gives at most 64 levels.
func podLevel(levels []Level, uid string) (Level, bool) {
	if len(levels) == 0 || levels[len(levels)-1].Depth != 0 {
		return Level{}, false
	}
	for _, l := range slices.Backward(levels) {
		if of, ok := process.PodUID(unix.ByteSliceToString(unsafe.Slice((*byte)(unsafe.Pointer(&l.Name)), len(l.Name)))); ok && of == uid {
			return l, true
		}
	}
	return Level{}, false
}

// CountCgroups returns how many of the node's processes are in a cgroup that BPF sees. proc is the node's /proc.
func CountCgroups(proc string) (int, error) {
	b, err := os.ReadFile(proc + "/self/cgroup")
	if err != nil {
		return 0, fmt.Errorf("read own cgroups: %w", err)
	}
	all, err := runIterator(traceProgSondeTasks, map[string]any{traceVarCgroupV1: len(pidsLine(b)) > 0}, readTasks)
	if err != nil {
		return 0, err
	}
	found := 0
	for _, s := range all {
		if s.Cgroup != 0 {
			found++
		}
	}
	return found, nil
}

// pidsLine returns the line of the pids controller, whose cgroups tell Pods apart, in a process's list of cgroups. It is empty
// if the controller has no hierarchy of version 1 (cgroups(7)).
func pidsLine(cgroups []byte) []byte {
	for line := range bytes.Lines(cgroups) {
		if parts := strings.SplitN(string(line), ":", 3); len(parts) == 3 && slices.Contains(strings.Split(parts[1], ","), "pids") {
			return line
		}
	}
	return nil
}

// levelsOf returns the cgroups that a process is in, its own first and the root last.
func levelsOf(pid int, v1 bool) ([]Level, error) {
	return runIterator(traceProgSondeLevels, map[string]any{traceVarCgroupV1: v1, traceVarLevelsOf: uint32(pid)}, readLevels)
}

// runIterator loads an iterator alone, with constants, and reads its output.
func runIterator[T any](name string, constants map[string]any, read func(io.Reader) (T, error)) (none T, err error) {
	spec, err := loadTrace()
	if err != nil {
		return none, fmt.Errorf("read BPF objects: %w", err)
	}
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return none, fmt.Errorf("set %s: %w", name, err)
		}
	}
	maps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return !strings.HasPrefix(name, ".") }) // keep constants
	objects, err := ebpf.NewCollection(spec)
	if err != nil {
		return none, explain(err)
	}
	defer objects.Close()
	return iterate(objects.Programs[name], "processes", tasksWithin, read)
}

// Tasks returns the node's processes by PID, each with its own cgroup. It needs Config.ByContainer.
func (p *Program) Tasks() (map[uint32]Task, error) {
	return iterate(p.Objects.Programs[traceProgSondeTasks], "processes", tasksWithin, readTasks)
}

// ExcludeCgroup makes the programs ignore a cgroup's processes. It needs Config.ByContainer.
func (p *Program) ExcludeCgroup(cgroup uint64) error {
	return p.Objects.Maps[traceMapExcluded].Update(cgroup, uint8(1), ebpf.UpdateAny)
}

func readTasks(r io.Reader) (map[uint32]Task, error) {
	all, err := readAll[Task](r)
	found := make(map[uint32]Task, len(all))
	for _, s := range all {
		found[s.Pid] = s
	}
	return found, err
}

func readLevels(r io.Reader) ([]Level, error) { return readAll[Level](r) }

// readAll reads an iterator's output, which has no pointers.
func readAll[T any](r io.Reader) (all []T, err error) {
	for {
		var one T
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one)))
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read processes: %w", err)
		}
		all = append(all, one)
	}
}
