package process

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// ErrNoProcess says that a Pod has no process on this node.
var ErrNoProcess = errors.New("no process of the pod on this node")

// Process is one process of a Pod. PID and StartTime together identify it until the node restarts.
type Process struct {
	PID         int
	ContainerID string
	// StartTime is when the process started, in clock ticks since the node's boot (field 22 of proc_pid_stat(5)).
	StartTime uint64
}

// Finder finds processes in the process file system. The zero value reads /proc.
type Finder struct {
	// Root is where the process file system is mounted; "/proc" if empty.
	Root string
	// NodeRoot is the root directory of the node's file system; the one of process 1 if empty.
	NodeRoot string
}

func (f Finder) root() string { return cmp.Or(f.Root, "/proc") }

func (f Finder) path(pid int, name string) string {
	return filepath.Join(f.root(), strconv.Itoa(pid), name)
}

// Pod returns the processes of the Pod's containers, its sandbox included, the oldest first; none is not an error. It leaves
// out processes that end during the search, and zombies, which have no namespaces any more. It also leaves out processes that
// cannot be read, unless none can: a container may make its own unreadable, for example by a long path of its cgroup.
func (f Finder) Pod(uid string) ([]Process, error) {
	found, _, err := f.search(uid)
	return found, err
}

// search is Pod; it also returns the processes of the node that cannot be read, as PIDs.
func (f Finder) search(uid string) (found []Process, unreadable []int, err error) {
	if !validUID(uid) {
		return nil, nil, fmt.Errorf("find processes: %q is not a pod UID (a static pod is found by its kubernetes.io/config.hash)", uid)
	}
	readable := false
	var problem error
	ids := map[string]string{} // of containers: a Pod may have very many processes
	err = f.each(func(pid int) {
		p, ok, err := f.process(pid, uid)
		if err != nil {
			unreadable, problem = append(unreadable, pid), err
			return
		}
		readable = true
		if !ok {
			return
		}
		if _, known := ids[p.ContainerID]; !known {
			id := strings.Clone(p.ContainerID) // without the cgroup's path
			ids[id] = id
		}
		p.ContainerID = ids[p.ContainerID]
		found = append(found, p)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("find processes: %w", err)
	}
	if !readable && problem != nil {
		return nil, nil, fmt.Errorf("find processes: none of %d can be read: %w", len(unreadable), problem)
	}
	slices.SortFunc(found, func(a, b Process) int {
		return cmp.Or(cmp.Compare(a.StartTime, b.StartTime), cmp.Compare(a.PID, b.PID))
	})
	return found, unreadable, nil
}

// processesAtOnce are listed at a time: os.ReadDir would take memory for each process of the node.
const processesAtOnce = 1024

// each calls a function for each process of the node.
func (f Finder) each(visit func(pid int)) error {
	dir, err := os.Open(f.root())
	if err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(processesAtOnce)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				visit(pid)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err //nolint:wrapcheck // the caller wraps it
		}
	}
}

// Container returns the processes of one container of a Pod. id may have the scheme that the API gives it
// ("containerd://...").
func (f Finder) Container(uid, id string) ([]Process, error) {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		id = bare
	}
	all, err := f.Pod(uid)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p Process) bool { return p.ContainerID != id }), nil
}

// process reads one process. It returns false if the PID is not a living process of the Pod.
func (f Finder) process(pid int, uid string) (Process, bool, error) {
	b, err := os.ReadFile(f.path(pid, "cgroup"))
	if err != nil {
		return Process{}, false, ignoreGone(err)
	}
	c, ok := ParseCgroup(b)
	if !ok || c.PodUID != uid {
		return Process{}, false, nil
	}
	b, err = os.ReadFile(f.path(pid, "stat"))
	if err != nil {
		return Process{}, false, ignoreGone(err)
	}
	state, start, err := parseStat(b)
	if err != nil {
		return Process{}, false, fmt.Errorf("read process %d: %w", pid, err)
	}
	if state == 'Z' || state == 'X' {
		return Process{}, false, nil
	}
	return Process{PID: pid, ContainerID: c.ID, StartTime: start}, true, nil
}

// parseStat reads state (field 3) and start time (field 22) of a /proc/<pid>/stat file. The command (field 2) may contain
// anything, including parentheses and blanks, so fields are counted from the last closing parenthesis.
func parseStat(b []byte) (state byte, start uint64, err error) {
	const stateField, startField = 3, 22
	i := bytes.LastIndexByte(b, ')')
	fields := bytes.Fields(b[i+1:])
	if i < 0 || len(fields) <= startField-stateField || len(fields[0]) != 1 {
		return 0, 0, errors.New("stat has too few fields")
	}
	if state = fields[0][0]; !unicode.IsLetter(rune(state)) || state >= unicode.MaxASCII {
		return 0, 0, fmt.Errorf("state %q is not a letter", state)
	}
	start, err = strconv.ParseUint(string(fields[startField-stateField]), 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("parse start time: %w", err)
	}
	return state, start, nil
}

// exitingFlag is PF_EXITING of linux/sched.h, in the flags of a /proc/<pid>/stat file.
const exitingFlag = 0x4

// Exiting reports whether a process ends, has ended, or is gone. Once it does, the hierarchies of cgroup v1 show the root as its
// cgroup: read the cgroup first.
func (f Finder) Exiting(pid int) bool {
	const stateField, flagsField = 3, 9
	b, err := os.ReadFile(f.path(pid, "stat"))
	if err != nil {
		return true
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= flagsField-stateField {
		return true
	}
	flags, err := strconv.ParseUint(string(fields[flagsField-stateField]), 10, 32)
	return err != nil || flags&exitingFlag != 0
}
