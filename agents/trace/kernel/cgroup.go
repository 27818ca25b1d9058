package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"

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

// errNoCgroup: the process is in no Pod's cgroup, or has ended.
var errNoCgroup = errors.New("the process is in no cgroup of a Pod")

// FindCgroup finds the Pod's cgroup from one of its processes. proc is the node's /proc. It asks the kernel by BPF,
// because a process in a cgroup namespace does not see the host's cgroup mounts.
func FindCgroup(proc string, pid int) (Cgroup, error) {
	b, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return Cgroup{}, fmt.Errorf("read cgroups of process %d: %w", pid, err)
	}
	above, v1, ok := process.Depth(b, "pids")
	if !ok {
		return Cgroup{}, errNoCgroup
	}
	all, err := tasks(v1, above)
	if err != nil {
		return Cgroup{}, err
	}
	s := all[uint32(pid)]
	if s.Cgroup == 0 {
		return Cgroup{}, fmt.Errorf("process %d: %w", pid, errNoCgroup)
	}
	return Cgroup{id: s.Cgroup, depth: s.Depth, v1: v1, level: s.Level}, nil
}

// CountCgroups returns how many of the node's processes are in a cgroup that BPF sees. proc is the node's /proc.
func CountCgroups(proc string) (int, error) {
	b, err := os.ReadFile(proc + "/self/cgroup")
	if err != nil {
		return 0, fmt.Errorf("read own cgroups: %w", err)
	}
	all, err := tasks(hasPidsV1(b), 0)
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

// hasPidsV1 reports whether the pids controller, whose cgroups tell Pods apart, has a hierarchy of version 1 (cgroups(7)).
func hasPidsV1(cgroups []byte) bool {
	for line := range bytes.Lines(cgroups) {
		parts := bytes.SplitN(line, []byte{':'}, 3)
		if len(parts) == 3 && slices.Contains(strings.Split(string(parts[1]), ","), "pids") {
			return true
		}
	}
	return false
}

// tasks returns the node's processes by PID, each with the ancestor of its cgroup that is above levels higher.
func tasks(v1 bool, above int) (map[uint32]Task, error) {
	spec, err := loadTrace()
	if err != nil {
		return nil, fmt.Errorf("read BPF objects: %w", err)
	}
	for name, value := range map[string]any{traceVarCgroupV1: v1, traceVarCgroupAbove: uint32(above)} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	var objects struct {
		Tasks *ebpf.Program `ebpf:"sonde_tasks"`
	}
	if err := spec.LoadAndAssign(&objects, nil); err != nil {
		return nil, explain(err)
	}
	defer objects.Tasks.Close()
	return iterate(objects.Tasks, "processes", readTasks)
}

// Tasks returns the node's processes by PID, each with its own cgroup. It needs Config.ByContainer.
func (p *Program) Tasks() (map[uint32]Task, error) {
	return iterate(p.Objects.Programs[traceProgSondeTasks], "processes", readTasks)
}

// ExcludeCgroup makes the programs ignore a cgroup's processes. It needs Config.ByContainer.
func (p *Program) ExcludeCgroup(cgroup uint64) error {
	return p.Objects.Maps[traceMapExcluded].Update(cgroup, uint8(1), ebpf.UpdateAny)
}

func readTasks(r io.Reader) (map[uint32]Task, error) {
	found := map[uint32]Task{}
	one := make([]byte, unsafe.Sizeof(Task{}))
	for {
		_, err := io.ReadFull(r, one)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read processes: %w", err)
		}
		var s Task
		if err := binary.Read(bytes.NewReader(one), binary.NativeEndian, &s); err != nil {
			return nil, fmt.Errorf("read processes: %w", err)
		}
		found[s.Pid] = s
	}
}
