package decode

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
)

// maxProcesses bounds the remembered processes, so that a target cannot fill the probe's memory.
const maxProcesses = 1 << 14

// resolver knows each process's container, working directory and open files. It reads them from /proc when the trace
// begins, and then follows the trace.
type resolver struct {
	finder     process.Finder
	processes  map[uint32]*processState // by their numbers on the node
	names      map[string]string        // the kubelet's names of containers by their IDs
	containers map[uint64]string        // names by cgroup
	sockets    map[string]string        // open before the trace: names by their names in /proc
}

// processState of the target.
type processState struct {
	cgroup    uint64
	container string
	cwd       string
	files     openFiles
}

func newResolver(on process.Finder) *resolver {
	return &resolver{finder: on, processes: map[uint32]*processState{}, containers: map[uint64]string{}, sockets: map[string]string{}}
}

// process returns the state of a process. It reads a new process's state from /proc.
func (r *resolver) process(pid uint32, cgroup uint64) *processState {
	p := r.processes[pid]
	if p == nil {
		p = r.read(pid)
		r.remember(pid, p)
	}
	if p.cgroup != cgroup && cgroup != 0 {
		name := r.container(pid, cgroup)
		if name == "" && p.cgroup == 0 { // it has ended: a gate ends when it is opened
			name = p.container
		}
		p.cgroup, p.container = cgroup, name
	}
	return p
}

// container names the container that a cgroup belongs to. The Pod's sandbox has no name.
func (r *resolver) container(pid uint32, cgroup uint64) string {
	if name := r.containers[cgroup]; name != "" {
		return name
	}
	name := r.containerOf(pid)
	// Another process of the cgroup may still have a name if this one has none.
	if name != "" && len(r.containers) < maxProcesses {
		r.containers[cgroup] = name
	}
	return name
}

func (r *resolver) remember(pid uint32, p *processState) {
	if len(r.processes) < maxProcesses {
		r.processes[pid] = p
	}
}

// read reads a process's state from /proc. The state is empty if the process has ended.
func (r *resolver) read(pid uint32) *processState {
	p := &processState{}
	p.cwd, _ = os.Readlink(r.path(pid, "cwd"))
	p.container = r.containerOf(pid)
	entries, err := os.ReadDir(r.path(pid, "fd"))
	if err != nil {
		return p
	}
	for _, e := range entries {
		fd, err := strconv.ParseInt(e.Name(), 10, 32)
		if err != nil || !p.files.room(int32(fd)) {
			continue
		}
		name, err := os.Readlink(r.path(pid, "fd/"+e.Name()))
		if err != nil {
			continue
		}
		p.files.set(int32(fd), openFile{name: cmp.Or(r.sockets[name], name), cloexec: r.cloexec(pid, e.Name())})
	}
	return p
}

// cloexec reads the flags of an open file (proc_pid_fdinfo(5)): an octal number.
func (r *resolver) cloexec(pid uint32, fd string) bool {
	b, err := os.ReadFile(r.path(pid, "fdinfo/"+fd))
	if err != nil {
		return false
	}
	for line := range bytes.Lines(b) {
		if text, ok := bytes.CutPrefix(line, []byte("flags:")); ok {
			n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 8, 64)
			return err == nil && n&unix.O_CLOEXEC != 0
		}
	}
	return false
}

func (r *resolver) path(pid uint32, name string) string {
	return fmt.Sprintf("%s/%d/%s", r.finder.Root, pid, name)
}

// retryContainer finds the container's name if it was unknown. A runtime makes the mount with the name after the first
// process has entered the cgroup, and before that process starts the container's program.
func (r *resolver) retryContainer(p *processState, pid uint32) {
	if p.container == "" && p.cgroup != 0 {
		p.container = r.container(pid, p.cgroup)
	}
}

// readNames reads the names of the node's containers.
func (r *resolver) readNames() error {
	names, err := r.finder.ContainerNames()
	if err == nil {
		r.names = names
	}
	return err
}

// containerOf finds the name of a process's container; empty if unknown. Where the kubelet's name is not known yet, it is
// taken from the process's mounts, which the process may have changed.
func (r *resolver) containerOf(pid uint32) string {
	if name, sure := r.containerForSure(pid); sure {
		return name
	}
	return r.mountedName(pid)
}

// mountedName finds the name of a process's container in its mounts. The kubelet mounts a file into each container whose
// source has the container's name, .../pods/UID/containers/NAME/....
func (r *resolver) mountedName(pid uint32) string {
	f, err := os.Open(r.path(pid, "mountinfo"))
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, ok := containerName(s.Text()); ok {
			return name
		}
	}
	return ""
}

// containerForSure is Decoder.ContainerOf.
func (r *resolver) containerForSure(pid uint32) (name string, sure bool) {
	b, err := os.ReadFile(r.path(pid, "cgroup"))
	if err != nil {
		return "", false
	}
	c, inContainer := process.ParseCgroup(b)
	name = r.names[c.ID]
	return name, !inContainer || name != ""
}

// containerName reads a line of proc_pid_mountinfo(5), whose fourth field is the mount's source in its file system.
func containerName(line string) (string, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return "", false
	}
	_, rest, ok := strings.Cut(fields[3], "/pods/")
	if !ok {
		return "", false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 || parts[1] != "containers" {
		return "", false
	}
	return parts[2], true
}

// fork gives a new process a copy of its parent's state.
func (r *resolver) fork(child, parent uint32) {
	if child == parent {
		return // a thread
	}
	from := r.process(parent, 0)
	r.remember(child, &processState{cgroup: from.cgroup, container: from.container, cwd: from.cwd, files: from.files.clone()})
}

// exec closes the descriptors with close-on-exec.
func (p *processState) exec() {
	for fd, f := range p.files.all() {
		if f.cloexec {
			p.files.forget(fd)
		}
	}
}

func (r *resolver) remove(pid uint32) { delete(r.processes, pid) }

// forget removes the processes of a cgroup.
func (r *resolver) forget(cgroup uint64) {
	maps.DeleteFunc(r.processes, func(_ uint32, p *processState) bool { return p.cgroup == cgroup })
}

// name returns the name of an open file; empty if unknown.
func (p *processState) name(fd int32) string { return p.files.get(fd).name }

// locate returns the path that a call names, relative to a directory's descriptor.
func (p *processState) locate(dir int32, name string) string {
	if strings.HasPrefix(name, "/") {
		return path.Clean(name)
	}
	base := p.cwd
	if dir != unix.AT_FDCWD {
		base = p.name(dir)
	}
	switch {
	case name == "": // AT_EMPTY_PATH: the directory itself
		return base
	case !strings.HasPrefix(base, "/"):
		return "" // not known, or not a directory
	}
	return path.Join(base, name)
}

// opened notes a new descriptor.
func (p *processState) opened(fd int32, name string, cloexec bool) {
	p.files.set(fd, openFile{name: name, cloexec: cloexec})
}
