package decode

import (
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Config of a Decoder.
type Config struct {
	// Node finds the node's processes and the names of its containers. Its Root is set.
	Node process.Finder
	// PodUID of the target. A process of another Pod may have got the number of one that has ended: nothing is read of it.
	PodUID string
	// Calls that are recorded.
	Calls *Table
	// TracksFiles says that every call is recorded that changes a descriptor or a working directory.
	TracksFiles bool
	// Timed says that calls are measured. Operations of io_urings that took less than MinLatency are left out; the kernel
	// leaves out calls.
	Timed      bool
	MinLatency time.Duration
}

// Decoder turns records into events. It must see the records of a trace in their order.
type Decoder struct {
	calls       *Table
	tracksFiles bool
	timed       bool
	minLatency  uint64
	resolver    *resolver
	urings      urings
	clock       bootClock

	event   tracefmt.Record
	path    []byte
	strings internedStrings
	open    map[flow]*kernel.Socket // connections at the end of the trace
	unread  uint64                  // processes of AddProcess without room
}

// New returns a decoder without any process.
func New(cfg Config) *Decoder {
	return &Decoder{
		calls: cfg.Calls, tracksFiles: cfg.TracksFiles, timed: cfg.Timed, minLatency: uint64(cfg.MinLatency),
		resolver: newResolver(cfg.Node, cfg.PodUID), urings: newURings(),
	}
}

// LookAhead gives the decoder the recorded events that it has not decoded yet. It then knows what a process has changed before its state
// was read from /proc, which is later than the process's first event.
func (d *Decoder) LookAhead(ahead Ahead) {
	d.resolver.late = func(pid uint32, p *processState) { d.doubtLate(ahead, pid, p, kernel.BootTime()) }
}

// ReadFiles sets whether the decoder reads the open files of processes, as it does by default. A trace needs them for their names and for
// Rings. To read the name of a file, the kernel holds the file for a moment. If its process closes it then, the kernel releases it in
// the probe.
func (d *Decoder) ReadFiles(on bool) { d.resolver.withoutFiles = !on }

// Start sets the clock of events, when the trace begins.
func (d *Decoder) Start() { d.clock.set() }

// AddProcess reads the state of a running process from /proc. keeps says which of its descriptors have no close-on-exec flag: the
// others have no name after an exec. If there is no room to remember the process, it is read again at its events.
func (d *Decoder) AddProcess(pid int, keeps func(fd int32) bool) {
	if d.resolver.full() {
		d.unread++
		return
	}
	d.resolver.process(uint32(pid), 0).keep(keeps)
}

// Rings returns how many io_urings the known processes have open. A ring that two of them share counts twice. A process whose
// descriptors were not all read counts once more.
func (d *Decoder) Rings() (n uint64) {
	n = d.unread
	for _, p := range d.resolver.processes {
		if p.unread {
			n++
		}
		for _, f := range p.files.all() {
			if f.name == "anon_inode:[io_uring]" {
				n++
			}
		}
	}
	return n
}

// ReadContainers reads the names of the node's containers, which ContainerOf uses.
func (d *Decoder) ReadContainers() error { return d.resolver.readNames() }

// Forgotten returns how many operations of io_urings were forgotten before their results came, because too many waited.
func (d *Decoder) Forgotten() uint64 { return d.urings.forgotten }

// Unnamed returns how many names of files and working directories, and how many processes, the decoder did not remember,
// because they take more than its memory. Events about them have no path.
func (d *Decoder) Unnamed() uint64 { return d.resolver.names.refused }

// ContainerOf finds the kubelet's name of a process's container by the container's ID, which is in the process's cgroup. No
// process can change either. The name of a runtime's process that monitors a container is empty for sure. sure is false for a
// process of the sandbox, or of a container that has just started. It is false, too, when the process has ended.
func (d *Decoder) ContainerOf(pid uint32) (name string, sure bool) {
	return d.resolver.containerForSure(pid)
}

// SetContainer names the container of a cgroup.
func (d *Decoder) SetContainer(cgroup uint64, name string) {
	if len(d.resolver.containers) < maxProcesses {
		d.resolver.containers[cgroup] = name
	}
}

// ForgetCgroup forgets the processes of a cgroup whose events are no longer recorded.
func (d *Decoder) ForgetCgroup(cgroup uint64) { d.resolver.forget(cgroup) }

// Decode makes the event of a record, and updates the known state of processes. The event is valid until the next call. It is
// nil if the record has no event of its own: an operation of an io_uring has one when it ends.
func (d *Decoder) Decode(e *kernel.Record) *tracefmt.Record {
	r, out := e.Head, &d.event
	d.resolver.now = r.Time
	if e.Uring != nil {
		return d.decodeUring(e, out)
	}
	d.setHead(e, out)
	if e.TCP != nil {
		return d.decodeTCP(e, out)
	}
	if kernel.Kind(r.Kind) == kernel.KindFork {
		d.resolver.fork(r.Pid, r.Parent, r.Time, r.Duration)
	}
	p := d.processOf(r)
	out.Container, out.Group = p.container, string(GroupProcess)
	switch kernel.Kind(r.Kind) {
	case kernel.KindExec:
		out.Call, out.Took, out.Path = EventExec, -1, e.First
		out.Args = append(out.Args, tracefmt.Arg{Name: "argv", Kind: tracefmt.List, Text: e.Second})
		if kernel.CommandChange(r.Ret) == kernel.CommandEnds {
			d.resolver.remove(r.Pid) // its end will not be recorded
		}
	case kernel.KindFork:
		out.Call, out.Took = EventFork, -1
		out.Args = append(out.Args, tracefmt.Arg{Name: "parentHostPid", Kind: tracefmt.Unsigned, Number: int64(r.Parent)})
	case kernel.KindExit:
		out.Call, out.Took = EventExit, -1
		out.HasRet, out.Ret = true, r.Ret>>8&0xff
		if signal := r.Ret & 0x7f; signal != 0 {
			out.Args = append(out.Args, tracefmt.Arg{Name: "signal", Kind: tracefmt.Text, Text: []byte(signalName(unix.Signal(signal)))})
		}
		if r.Last != 0 { // the first thread may end long before the others
			d.resolver.remove(r.Pid)
		}
	case kernel.KindFault:
		decodeFault(e, out)
	case kernel.KindSignal:
		decodeSignal(e, out)
	case kernel.KindOOM:
		decodeOOM(e, out)
	default:
		d.decodeCall(d.calls[e.Head.Call], e, p, out, descriptorUse{})
	}
	return out
}

// processOf returns the state of an event's process after the event.
func (d *Decoder) processOf(r *kernel.Head) *processState {
	if kernel.Kind(r.Kind) != kernel.KindExec {
		p := d.resolver.process(r.Pid, r.Cgroup)
		p.settle(r.Time)
		return p
	}
	begins := kernel.CommandChange(r.Ret) == kernel.CommandBegins
	if begins {
		d.resolver.remove(r.Pid) // its changes since then were not recorded
	}
	known := d.resolver.knows(r.Pid) // else /proc is read after the exec
	p := d.resolver.process(r.Pid, r.Cgroup)
	p.settle(r.Time)
	if known {
		p.exec()
	}
	d.resolver.retryContainer(p, r.Pid)
	return p
}

// setHead sets the fields of an event that come from its record's head.
func (d *Decoder) setHead(e *kernel.Record, out *tracefmt.Record) {
	r, args := e.Head, out.Args[:0]
	*out = tracefmt.Record{} // set field by field: copying a literal waits for its own stores
	out.Time, out.Comm, out.PID, out.TID, out.HostPID, out.HostTID, out.UID = d.clock.at(r.Time), e.Comm(), r.InnerPid, r.InnerTid, r.Pid, r.Tid, r.Uid
	out.Args, out.Took = args, -1
	if r.Duration > 0 { // else it was not measured, or it began before the trace
		out.Took = time.Duration(r.Duration)
	}
}

func setResult(ret int64, out *tracefmt.Record) {
	out.HasRet, out.Ret = true, ret
	if ret < 0 && ret >= -4095 {
		out.Errno = errnoName(-ret)
		out.Ret = -1
	}
}

func (d *Decoder) decodeCall(c *Call, e *kernel.Record, p *processState, out *tracefmt.Record, use descriptorUse) {
	out.Call, out.Group = c.Name, string(c.Group)
	setResult(e.Head.Ret, out)
	p.began = d.began(e, use)
	paths := 0
	dir, located := int32(unix.AT_FDCWD), ""
	for i := range c.Args {
		a, n := &c.Args[i], e.Numbers[i]
		out.Args = append(out.Args, tracefmt.Arg{})
		one := &out.Args[len(out.Args)-1]
		one.Name, one.Number = a.Name, int64(n)
		if !a.value(e, one, &paths) {
			out.Args = out.Args[:len(out.Args)-1]
		}
		switch {
		case a.Kind == ArgDir:
			dir = int32(n)
		case located != "":
		case a.Kind == ArgPath:
			located = d.locateArgument(c, i, e, min(paths, 2)-1, p, dir, one.Text)
		case a.Kind == ArgFD && !use.fixed && d.hasName(c, e):
			located = p.nameIn(c, int32(n))
		}
	}
	if c.onSocket() {
		located = socketPath(c, e, located)
	}
	d.path = append(d.path[:0], located...)
	out.Path = d.path
	located = d.certainName(c, e, located)
	switch {
	case use.untracked:
	case c.Group == GroupNetwork:
		trackSocket(c, e, p, located, d.tracksFiles)
	case d.tracksFiles && (e.Head.Ret >= 0 || c.Number == unix.SYS_CLOSE):
		d.track(c, e, p, located)
	}
}

// began returns when the kernel took the files of a call's descriptors, or zero if their names need no check. A call that began before
// the trace has no duration, and is older than each name that a record gives. One that has failed has done nothing with the files.
func (d *Decoder) began(e *kernel.Record, use descriptorUse) uint64 {
	switch {
	case use.began > 0:
		return use.began
	case e.Head.Duration > 0:
		return e.Head.Time - min(e.Head.Duration, e.Head.Time)
	case !d.timed || e.Head.Ret < 0:
		return 0
	}
	return beforeTheTrace
}

// beforeTheTrace is a time before each record, in nanoseconds since boot.
const beforeTheTrace = 1

// certainName returns the name that a call gives to a descriptor or the working directory. It returns an empty one, and counts it, if
// seccomp may have answered the call: then the kernel has not made it, and a process of the Pod has chosen its result. Such a call has
// no duration. Nor has one that began before the trace, which is why accept keeps its name: servers often wait in it at that time.
func (d *Decoder) certainName(c *Call, e *kernel.Record, name string) string {
	measured := !d.timed || e.Uring != nil || e.Head.Duration > 0
	failed := e.Head.Ret < 0 && e.Head.Ret != -int64(unix.EINPROGRESS)
	if name == "" || measured || failed || !c.changesFiles() {
		return name
	}
	switch c.Number {
	case unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_CLOSE:
		return name
	case unix.SYS_FCNTL:
		if cmd := uint32(e.Numbers[1]); cmd != unix.F_DUPFD && cmd != unix.F_DUPFD_CLOEXEC && cmd != unix.F_SETFD {
			return name
		}
	}
	d.resolver.names.refused++
	return ""
}

// value sets the value that is written for the argument; false if there is none. paths counts the call's paths.
func (a *Argument) value(e *kernel.Record, one *tracefmt.Arg, paths *int) bool {
	switch a.Kind {
	case ArgInt, ArgFD, ArgDir:
		one.Number = int64(int32(one.Number))
	case ArgOffset:
	case ArgUint:
		one.Kind = tracefmt.Unsigned
	case ArgHex, ArgMemory:
		one.Kind = tracefmt.Hex
	case ArgPath:
		one.Kind, one.Text = tracefmt.Text, [2][]byte{e.First, e.Second}[min(*paths, 1)]
		*paths++
	case ArgAddress, ArgAddressOut:
		one.Kind, one.Text = tracefmt.Text, []byte(addressText(e.Address))
		return len(e.Address) > 0
	case ArgPair:
		first, second, ok := pair(e.Address)
		one.Kind, one.Text = tracefmt.Text, fmt.Appendf(nil, "[%d, %d]", first, second)
		return ok
	}
	return true
}

// pair reads the two descriptors of a socketpair.
func pair(b []byte) (first, second int32, ok bool) {
	if len(b) != 8 {
		return 0, 0, false
	}
	return int32(binary.NativeEndian.Uint32(b)), int32(binary.NativeEndian.Uint32(b[4:])), true
}

// locateArgument returns the absolute path that is an argument of a call, the nth path among them; empty if it could not be read, or if
// its base is unknown. The text of a symbolic link is no path that the call concerns.
func (d *Decoder) locateArgument(c *Call, argument int, e *kernel.Record, n int, p *processState, dir int32, text []byte) string {
	if [2]uint16{e.Head.First, e.Head.Second}[n] == 0 || c.Args[argument].Name == linkText {
		return ""
	}
	name := d.strings.get(text)
	if c.Number == unix.SYS_OPENAT2 && isInRoot(e.Address) {
		name = "." + path.Clean("/"+name)
	}
	return d.locate(p, dir, name)
}

// isInRoot reports whether openat2's struct open_how makes the directory the root of the path (RESOLVE_IN_ROOT). It is unknown for an
// operation of an io_uring, and where the memory could not be read.
func isInRoot(how []byte) bool {
	const at = 16
	return len(how) >= at+8 && binary.NativeEndian.Uint64(how[at:])&unix.RESOLVE_IN_ROOT != 0
}

// locate returns the absolute path that a call names; empty if its base is unknown.
func (d *Decoder) locate(p *processState, dir int32, name string) string {
	if !d.tracksFiles && !path.IsAbs(name) {
		return ""
	}
	return p.locate(dir, name)
}

// hasName reports whether the name of the call's descriptor is known. If not all calls that change descriptors are
// recorded, only sockets have names. They have none if short calls, or those that open sockets, are missing: a descriptor may be
// another connection by now. The kernel ignores the descriptor of an anonymous mapping.
func (d *Decoder) hasName(c *Call, e *kernel.Record) bool {
	anonymous := c.Number == unix.SYS_MMAP && e.Numbers[3]&unix.MAP_ANONYMOUS != 0
	tracksSockets := d.calls[unix.SYS_SOCKET] != nil && d.minLatency == 0
	return (d.tracksFiles || c.onSocket() && tracksSockets) && !anonymous
}

// track notes how a successful call changed descriptors or the working directory. A close also counts if it has failed: after EIO
// and EINTR the descriptor is free for another file (close(2)), and after EBADF it was before.
func (d *Decoder) track(c *Call, e *kernel.Record, p *processState, located string) {
	ret := int32(e.Head.Ret)
	switch c.Number {
	case unix.SYS_CLOSE:
		p.closed(int32(e.Numbers[0]))
	case unix.SYS_CHDIR, unix.SYS_FCHDIR:
		p.enter(located)
		p.cwdSince = stampOf(e.Head.Time)
	case unix.SYS_CLOSE_RANGE:
		trackCloseRange(e, p)
	case unix.SYS_FCNTL:
		trackFcntl(e, p, located)
	case unix.SYS_DUP3:
		p.openedBy(e, ret, located, e.Numbers[2]&unix.O_CLOEXEC != 0)
	case unix.SYS_OPENAT:
		p.openedFree(e, ret, located, e.Numbers[2]&unix.O_CLOEXEC != 0)
	case unix.SYS_OPENAT2:
		p.openedFree(e, ret, located, closesOnExec(e.Address))
	default:
		switch {
		case !c.returnsFD || copiesToItself(c, e):
		case c.Name == "dup2":
			p.openedBy(e, ret, located, false)
		default:
			p.openedFree(e, ret, located, c.Name == "open" && e.Numbers[1]&unix.O_CLOEXEC != 0)
		}
	}
}

// copiesToItself reports whether dup2 leaves a descriptor as it is.
func copiesToItself(c *Call, e *kernel.Record) bool {
	return c.Name == "dup2" && int32(e.Numbers[0]) == int32(e.Numbers[1])
}

// trackCloseRange notes which descriptors are closed. The kernel ignores the upper half of each number.
func trackCloseRange(e *kernel.Record, p *processState) {
	first, last := uint32(e.Numbers[0]), uint32(e.Numbers[1])
	for fd, f := range p.files.all() {
		switch {
		case uint32(fd) < first || uint32(fd) > last:
		case e.Numbers[2]&unix.CLOSE_RANGE_CLOEXEC != 0:
			f.cloexec = true
			p.files.set(fd, f)
		default:
			p.files.forget(fd)
		}
	}
}

// closesOnExec reports whether openat2's struct open_how has O_CLOEXEC. It is unknown for an operation of an io_uring, and where the
// memory could not be read. Then the descriptor has no name after an exec: another file may have its number.
func closesOnExec(how []byte) bool {
	return len(how) < 8 || binary.NativeEndian.Uint64(how)&unix.O_CLOEXEC != 0
}

func trackFcntl(e *kernel.Record, p *processState, located string) {
	switch command := uint32(e.Numbers[1]); command { // the kernel ignores the upper half
	case unix.F_DUPFD, unix.F_DUPFD_CLOEXEC:
		p.openedFree(e, int32(e.Head.Ret), located, command == unix.F_DUPFD_CLOEXEC)
	case unix.F_SETFD:
		fd := int32(e.Numbers[0])
		p.files.set(fd, openFile{name: located, since: p.files.get(fd).since, cloexec: e.Numbers[2]&unix.FD_CLOEXEC != 0})
	}
}

// restarts are the kernel's own codes for a call that a signal has interrupted (include/linux/errno.h): the process never
// sees them, because the call is restarted or fails with EINTR.
var restarts = map[int64]string{512: "ERESTARTSYS", 513: "ERESTARTNOINTR", 514: "ERESTARTNOHAND", 516: "ERESTART_RESTARTBLOCK"}

func errnoName(n int64) string {
	if name, ok := restarts[n]; ok {
		return name
	}
	if name := unix.ErrnoName(unix.Errno(n)); name != "" {
		return name
	}
	return strconv.FormatInt(n, 10)
}
