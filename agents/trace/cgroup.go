package trace

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/sonde-operator/sonde/agents/node/process"
)

// cgroup is a Pod's: the number of its kernfs node.
type cgroup struct {
	id    uint64
	depth uint32
	// v1 says that it is that of the pids controller, of a host with cgroup v1.
	v1 bool
	// level of the node's PID namespace, which is this process's own.
	level uint32
}

// errNoCgroup: the process is in no cgroup of a Pod, or has ended.
var errNoCgroup = errors.New("the process is in no cgroup of a Pod")

// findCgroup finds the Pod's cgroup from one of its processes. It asks the kernel and not a file system: whoever is in a
// cgroup namespace does not see where the host's cgroups are mounted.
func findCgroup(proc string, pid int) (cgroup, error) {
	b, err := os.ReadFile(proc + "/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return cgroup{}, fmt.Errorf("read cgroups of process %d: %w", pid, err)
	}
	above, v1, ok := process.Depth(b, "pids")
	if !ok {
		return cgroup{}, errNoCgroup
	}
	all, err := cgroups(v1, above)
	if err != nil {
		return cgroup{}, err
	}
	s := all[uint32(pid)]
	if s.Cgroup == 0 {
		return cgroup{}, fmt.Errorf("process %d: %w", pid, errNoCgroup)
	}
	return cgroup{id: s.Cgroup, depth: s.Depth, v1: v1, level: s.Level}, nil
}

// cgroups returns, for each process of the node by its number there, the cgroup that lies so many above its own.
func cgroups(v1 bool, above int) (map[uint32]traceSeen, error) {
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
	return seenBy(objects.Tasks)
}

// seenBy reads what sonde_tasks says of each process, by its number.
func seenBy(tasks *ebpf.Program) (map[uint32]traceSeen, error) {
	l, err := link.AttachIter(link.IterOptions{Program: tasks})
	if err != nil {
		return nil, fmt.Errorf("attach the iterator of processes: %w", err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return nil, fmt.Errorf("read processes: %w", err)
	}
	defer r.Close()
	return readSeen(bufio.NewReaderSize(r, 64<<10))
}

func readSeen(r io.Reader) (map[uint32]traceSeen, error) {
	found := map[uint32]traceSeen{}
	one := make([]byte, unsafe.Sizeof(traceSeen{}))
	for {
		_, err := io.ReadFull(r, one)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read processes: %w", err)
		}
		var s traceSeen
		if err := binary.Read(bytes.NewReader(one), binary.NativeEndian, &s); err != nil {
			return nil, fmt.Errorf("read processes: %w", err)
		}
		found[s.Pid] = s
	}
}
