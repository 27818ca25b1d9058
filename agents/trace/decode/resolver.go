package decode

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// These bounds keep a target from filling the probe's memory.
const (
	maxProcesses = 1 << 14
	// sweepAfter processes without room start a search for ended ones whose end was lost. It takes a system call for each
	// remembered process.
	sweepAfter = 1 << 10
	// maxContainerName is the longest name that Kubernetes gives a container.
	maxContainerName = 63
	// descriptorsAtOnce are read from /proc at a time: a process may have a million.
	descriptorsAtOnce = 256
	// maxSlack bounds the bytes of a longer text that a path keeps in memory.
	maxSlack = 16
	// maxClosing descriptors of a process are in its closing. As many threads close one at once.
	maxClosing = 64
)

// resolver knows each process's container, working directory and open files. It reads them from /proc when the trace
// begins, and then follows the trace.
type resolver struct {
	finder     process.Finder
	podUID     string                   // empty: any
	processes  map[uint32]*processState // by their numbers on the node
	kubelet    map[string]string        // the kubelet's names of containers by their IDs
	containers map[uint64]string        // names by cgroup
	guesses    map[uint64]string        // names by cgroup that the kubelet has not confirmed
	namesRead  uint64                   // when kubelet was read, in nanoseconds since boot
	now        uint64                   // the time of the event that is decoded
	sockets    map[string]string        // open before the trace: names by their names in /proc
	names      budget
	// last is the process that was asked for last while there was no room to remember it.
	last    *processState
	lastPID uint32
	// refused counts processes that found no room since ended ones were looked for.
	refused int
	// late, if not nil, is called with a process whose state was read at one of its events (Decoder.LookAhead).
	late func(pid uint32, p *processState)
	// withoutFiles: no open files are read (Decoder.ReadFiles).
	withoutFiles bool
}

// processState of the target.
type processState struct {
	cgroup    uint64
	container string
	guess     guess // of container
	cwd       string
	files     openFiles
	// unread says that the process has more descriptors than were read.
	unread bool
	// read is when the state was read from /proc, in nanoseconds since boot, if a part of it is not what it was before: the
	// working directory, or doubtful files. Otherwise it may be zero.
	read        uint64
	cwdDoubtful bool
	cwdSince    stamp
	// began is when the call that is decoded began, in nanoseconds since boot. The kernel takes the file of a descriptor, and the working
	// directory, at that time: names that are younger are of others. Zero is for a call whose names need no such check.
	began uint64
	// closing has the names of descriptors whose numbers another file has already: the records of their close are still to come.
	closing map[int32]string
}

func newResolver(on process.Finder, podUID string) *resolver {
	return &resolver{
		finder: on, podUID: podUID, processes: map[uint32]*processState{}, containers: map[uint64]string{}, guesses: map[uint64]string{}, sockets: map[string]string{},
		names: budget{left: maxNames},
	}
}

func newProcess(names *budget) *processState { return &processState{files: openFiles{budget: names}} }

// process returns the state of a process. It reads a new process's state from /proc.
func (r *resolver) process(pid uint32, cgroup uint64) *processState {
	p := r.processes[pid]
	if p == nil {
		p = r.added(pid)
	}
	switch {
	case p.cgroup != cgroup && cgroup != 0:
		name, sure := r.container(pid, cgroup)
		if name == "" && p.cgroup == 0 { // it has ended: a gate ends when it is opened
			name = p.container
		}
		p.cgroup, p.container = cgroup, name
		p.guess.set(sure)
	case p.guess.made:
		r.checkGuess(pid, p)
	}
	return p
}

// knows reports whether a process's state has been read before.
func (r *resolver) knows(pid uint32) bool {
	return r.processes[pid] != nil || r.last != nil && r.lastPID == pid
}

// added returns the state of a process that is not known. It is remembered, if there is room.
func (r *resolver) added(pid uint32) *processState {
	if r.last != nil && r.lastPID == pid {
		return r.last
	}
	p := r.read(pid)
	if r.late != nil && (p.cwd != "" || p.files.table != nil) {
		r.late(pid, p)
	}
	if !r.remember(pid, p) {
		r.forgetLast()
		r.last, r.lastPID = p, pid
	}
	return p
}

func (r *resolver) forgetLast() {
	if r.last != nil {
		r.last.release()
		r.last = nil
	}
}

// full reports whether no other process can be remembered.
func (r *resolver) full() bool { return len(r.processes) >= maxProcesses }

func (r *resolver) remember(pid uint32, p *processState) bool {
	if r.full() {
		if r.refused++; r.refused >= sweepAfter {
			r.sweep()
		}
	}
	if r.full() {
		r.names.refused++
		return false
	}
	r.processes[pid] = p
	return true
}

// sweep forgets processes that have ended.
func (r *resolver) sweep() {
	r.refused = 0
	for pid := range r.processes {
		if _, err := os.Lstat(r.path(pid, "")); errors.Is(err, os.ErrNotExist) {
			r.remove(pid)
		}
	}
}

// read reads a process's state from /proc. The state is empty if the process has ended, even if one of another Pod has its
// number now.
func (r *resolver) read(pid uint32) *processState {
	if r.isTargets(pid) {
		p := r.readAny(pid)
		if r.isTargets(pid) {
			return p
		}
		p.release()
	}
	return newProcess(&r.names)
}

// isTargets reports whether a running process is one of the target's containers.
func (r *resolver) isTargets(pid uint32) bool {
	if r.podUID == "" {
		return true
	}
	b, err := os.ReadFile(r.path(pid, "cgroup"))
	if err != nil {
		return false
	}
	c, _ := process.ParseCgroup(b)
	return c.PodUID == r.podUID
}

func (r *resolver) readAny(pid uint32) *processState {
	p := newProcess(&r.names)
	cwd, _ := os.Readlink(r.path(pid, "cwd"))
	p.enter(cwd)
	name, sure := r.containerOf(pid, 0)
	p.container = name
	p.guess.set(sure)
	if r.withoutFiles {
		return p
	}
	dir, err := os.Open(r.path(pid, "fd"))
	if err != nil {
		return p
	}
	defer dir.Close()
	for !p.unread {
		descriptors, err := dir.Readdirnames(descriptorsAtOnce)
		for _, fd := range descriptors {
			r.readFile(p, pid, fd)
		}
		if err != nil {
			break
		}
	}
	return p
}

// readFile reads the name of a process's open file. Its flags are unknown: it counts as closed by an exec, after which another
// file may have its number. /proc/PID/fdinfo has them, but a target's file can make the reader wait there, unkillable.
func (r *resolver) readFile(p *processState, pid uint32, descriptor string) {
	fd, err := strconv.ParseInt(descriptor, 10, 32)
	if err != nil {
		return
	}
	name, err := os.Readlink(r.path(pid, "fd/"+descriptor))
	if err != nil {
		return
	}
	p.opened(int32(fd), cmp.Or(r.sockets[name], name), true)
	p.unread = p.unread || p.files.get(int32(fd)) == openFile{}
}

func (r *resolver) path(pid uint32, name string) string {
	return fmt.Sprintf("%s/%d/%s", r.finder.Root, pid, name)
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
	if !inContainer && r.finder.Exiting(int(pid)) {
		return "", false // with cgroup v1 it may still belong to a container
	}
	name = r.kubelet[c.ID]
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
	if len(parts) != 4 || parts[1] != "containers" || len(parts[2]) > maxContainerName {
		return "", false
	}
	return strings.Clone(parts[2]), true // without the line, which the process may have made long
}

// fork gives a new process a copy of its parent's state at a time, in nanoseconds since boot. The copying took some time before: what
// other threads have changed meanwhile is unknown for the child.
func (r *resolver) fork(child, parent uint32, at, took uint64) {
	switch {
	case child == parent:
		return // a thread
	case !r.knows(parent) && !r.isTargets(parent):
		// It has ended, or it is none of the Pod: a runtime can start a process in the Pod's cgroup (clone3). Then the state of the child
		// is read.
		r.remove(child)
		return
	}
	from := r.process(parent, 0)
	from.settle(at)
	if from.began = 0; took > 0 {
		from.began = at - min(took, at)
	}
	r.remove(child) // the end of an earlier process with its number was not recorded
	p := &processState{cgroup: from.cgroup, container: from.container, guess: from.guess, files: from.files.share(), unread: from.unread}
	p.forgetDoubtful()
	p.forgetLater(from.began)
	if p.enter(from.directory()); !r.remember(child, p) {
		p.release()
	}
}

// keep notes which descriptors of a process that was read from /proc an exec does not close.
func (p *processState) keep(keeps func(fd int32) bool) {
	for fd, f := range p.files.all() {
		if keeps(fd) {
			p.opened(fd, f.name, false)
		}
	}
}

// exec closes the descriptors with close-on-exec.
func (p *processState) exec() {
	for fd, f := range p.files.all() {
		if f.cloexec {
			p.files.forget(fd)
		}
	}
}

func (r *resolver) remove(pid uint32) {
	if r.lastPID == pid {
		r.forgetLast()
	}
	if p := r.processes[pid]; p != nil {
		p.release()
		delete(r.processes, pid)
	}
}

// forget removes the processes of a cgroup.
func (r *resolver) forget(cgroup uint64) {
	for pid, p := range r.processes {
		if p.cgroup == cgroup {
			r.remove(pid)
		}
	}
}

// release gives the memory of a process's names back.
func (p *processState) release() {
	p.enter("")
	for fd := range p.closing {
		p.endClosing(fd)
	}
	p.files.release()
}

// enter notes a new working directory.
func (p *processState) enter(dir string) {
	if !p.files.budget.take(len(dir) - len(p.cwd)) {
		p.files.budget.refused++
		p.files.budget.give(len(p.cwd))
		dir = ""
	}
	p.cwd, p.cwdDoubtful, p.cwdSince = dir, false, stamp{}
}

// name returns the name of an open file; empty if unknown.
func (p *processState) name(fd int32) string {
	f := p.files.get(fd)
	if f.doubtful || f.name != "" && p.isLater(f.since) {
		return ""
	}
	return f.name
}

// isLater reports whether a name came after the beginning of the call that is decoded, and counts it.
func (p *processState) isLater(since stamp) bool {
	if p.began == 0 || !since.after(stampOf(p.began)) {
		return false
	}
	p.files.budget.refused++
	return true
}

// directory returns the working directory; empty if unknown.
func (p *processState) directory() string {
	if p.cwdDoubtful || p.cwd != "" && p.isLater(p.cwdSince) {
		return ""
	}
	return p.cwd
}

// locate returns the path that a call names, relative to a directory's descriptor.
func (p *processState) locate(dir int32, name string) string {
	if strings.HasPrefix(name, "/") {
		return p.cleaned(path.Clean(name), len(name))
	}
	var base string
	if dir == unix.AT_FDCWD {
		base = p.directory()
	} else {
		base = p.name(dir)
	}
	switch {
	case name == "": // AT_EMPTY_PATH: the directory itself
		return base
	case !strings.HasPrefix(base, "/"):
		return "" // not known, or not a directory
	}
	return p.cleaned(path.Join(base, name), len(base)+len(name))
}

// cleaned returns a clean path that was made of so many bytes. It may still be a part of them. One that no call can name is
// unknown: a process can enter folders that lie as deep as it likes.
func (p *processState) cleaned(name string, of int) string {
	switch {
	case len(name) >= maxPath:
		p.files.budget.refused++
		return ""
	case of-len(name) > maxSlack:
		return strings.Clone(name)
	}
	return name
}

// opened notes a descriptor that is older than the trace.
func (p *processState) opened(fd int32, name string, cloexec bool) {
	p.files.set(fd, openFile{name: name, cloexec: cloexec})
}

// openedBy notes a descriptor that a call has made, or given another name.
func (p *processState) openedBy(e *kernel.Record, fd int32, name string, cloexec bool) {
	p.files.set(fd, openFile{name: name, since: stampOf(e.Head.Time), cloexec: cloexec})
}

// openedFree notes a descriptor that a call has made with a free number. The kernel frees a number when a close begins. So if the number
// has a name, the record of a close is still to come, which is not the one of the new file.
func (p *processState) openedFree(e *kernel.Record, fd int32, name string, cloexec bool) {
	before := p.files.get(fd)
	p.endClosing(fd) // the record of that close was lost
	if p.began > 0 && before.name != "" && !before.doubtful && len(p.closing) < maxClosing && p.files.budget.take(highBytes+len(before.name)) {
		if p.closing == nil {
			p.closing = map[int32]string{}
		}
		p.closing[fd] = before.name
	}
	p.openedBy(e, fd, name, cloexec)
}

// closed notes that the call that is decoded has closed a descriptor.
func (p *processState) closed(fd int32) {
	if _, again := p.reopened(fd); !again {
		p.files.forget(fd)
	}
	p.endClosing(fd)
}

// reopened reports whether a descriptor's number got another file during the close that is decoded, and its name before.
func (p *processState) reopened(fd int32) (before string, again bool) {
	before, again = p.closing[fd]
	return before, again && p.began > 1 && p.files.get(fd).since.after(stampOf(p.began))
}

func (p *processState) endClosing(fd int32) {
	if before, ok := p.closing[fd]; ok {
		delete(p.closing, fd)
		p.files.budget.give(highBytes + len(before))
	}
}

// nameIn returns the name of a call's descriptor; empty if unknown.
func (p *processState) nameIn(c *Call, fd int32) string {
	if c.Number == unix.SYS_CLOSE {
		if before, again := p.reopened(fd); again {
			return before
		}
	}
	return p.name(fd)
}
