package trace

import (
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Names of events that are no system calls.
const (
	eventExec   = "exec"
	eventFork   = "fork"
	eventExit   = "exit"
	eventFault  = "fault"
	eventSignal = "signal"
	eventOOM    = "oom_kill"
)

// describe makes a record of an event and notes what the event changes. The record is good until the next one.
func (t *Trace) describe(e *event) *tracefmt.Record {
	r, out := e.record, &t.record
	args := out.Args[:0]
	*out = tracefmt.Record{} // and then its fields: what is made elsewhere and copied waits for itself to be written
	out.Time, out.Comm, out.PID, out.TID, out.HostPID, out.HostTID, out.UID = t.clock.at(r.Time), e.comm(), r.InnerPid, r.InnerTid, r.Pid, r.Tid, r.Uid
	out.Args, out.Took = args, -1
	if r.Took > 0 { // else nobody measured, or it began before the trace
		out.Took = time.Duration(r.Took)
	}
	if e.tcp != nil {
		return t.describeTCP(e, out)
	}
	if traceKind(r.Kind) == traceKindKIND_FORK {
		t.resolver.fork(r.Pid, r.Parent)
	}
	p := t.processOf(r)
	out.Container, out.Group = p.container, string(GroupProcess)
	switch traceKind(r.Kind) {
	case traceKindKIND_EXEC:
		out.Call, out.Took, out.Path = eventExec, -1, e.first
		out.Args = append(out.Args, tracefmt.Arg{Name: "argv", Kind: tracefmt.List, Text: e.second})
		if traceTurn(r.Ret) == traceTurnTURN_GOES {
			t.resolver.gone(r.Pid) // of its end nothing will be told
		}
	case traceKindKIND_FORK:
		out.Call, out.Took = eventFork, -1
		out.Args = append(out.Args, tracefmt.Arg{Name: "parentHostPid", Kind: tracefmt.Unsigned, Number: int64(r.Parent)})
	case traceKindKIND_EXIT:
		out.Call, out.Took = eventExit, -1
		out.HasRet, out.Ret = true, r.Ret>>8&0xff
		if signal := r.Ret & 0x7f; signal != 0 {
			out.Args = append(out.Args, tracefmt.Arg{Name: "signal", Kind: tracefmt.Text, Text: []byte(unix.SignalName(unix.Signal(signal)))})
		}
		if r.Pid == r.Tid {
			t.resolver.gone(r.Pid)
		}
	case traceKindKIND_FAULT:
		describeFault(e, out)
	case traceKindKIND_SIGNAL:
		describeSignal(e, out)
	case traceKindKIND_OOM:
		describeOOM(e, out)
	default:
		t.describeCall(e, p, out)
	}
	return out
}

// processOf an event, as it is after it.
func (t *Trace) processOf(r *traceRecord) *processState {
	if traceKind(r.Kind) != traceKindKIND_EXEC {
		return t.resolver.of(r.Pid, r.Cgroup)
	}
	comes := traceTurn(r.Ret) == traceTurnTURN_COMES
	if comes {
		t.resolver.gone(r.Pid) // whatever it was before, nobody told what it did meanwhile
	}
	p := t.resolver.of(r.Pid, r.Cgroup)
	if !comes { // else it was read after it
		p.exec()
	}
	t.resolver.askAgain(p, r.Pid)
	return p
}

func (t *Trace) describeCall(e *event, p *processState, out *tracefmt.Record) {
	c := t.calls[e.record.Call]
	out.Call, out.Group, out.HasRet, out.Ret = c.name, string(c.group), true, e.record.Ret
	if e.record.Ret < 0 && e.record.Ret >= -4095 {
		out.Errno = errnoName(-e.record.Ret)
		out.Ret = -1
	}
	texts := 0
	dir, located := int32(unix.AT_FDCWD), ""
	for i := range c.args {
		a, n := &c.args[i], e.numbers[i]
		out.Args = append(out.Args, tracefmt.Arg{})
		one := &out.Args[len(out.Args)-1]
		one.Name, one.Number = a.name, int64(n)
		if !a.value(e, one, &texts) {
			out.Args = out.Args[:len(out.Args)-1]
		}
		switch {
		case a.kind == argDir:
			dir = int32(n)
		case located != "":
		case a.kind == argPath:
			located = t.locate(p, dir, t.texts.of(one.Text))
		case a.kind == argFD && !t.nameless(c, e):
			located = p.name(int32(n))
		}
	}
	if c.socket() {
		located = socketPath(c, e, located)
	}
	t.path = append(t.path[:0], located...)
	out.Path = t.path
	switch {
	case c.group == GroupNetwork:
		learnSocket(c, e, p, located)
	case e.record.Ret >= 0 && t.named:
		t.learn(c, e, p, located)
	}
}

// value makes of the number what is written; false where there is nothing to write. texts counts the call's paths.
func (a *argument) value(e *event, one *tracefmt.Arg, texts *int) bool {
	switch a.kind {
	case argInt, argFD, argDir:
		one.Number = int64(int32(one.Number))
	case argOffset:
	case argUint:
		one.Kind = tracefmt.Unsigned
	case argHex:
		one.Kind = tracefmt.Hex
	case argPath:
		one.Kind, one.Text = tracefmt.Text, [2][]byte{e.first, e.second}[min(*texts, 1)]
		*texts++
	case argAddress, argAddressOut:
		one.Kind, one.Text = tracefmt.Text, []byte(addressText(e.address))
		return len(e.address) > 0
	case argPair:
		first, second, ok := pair(e.address)
		one.Kind, one.Text = tracefmt.Text, fmt.Appendf(nil, "[%d, %d]", first, second)
		return ok
	}
	return true
}

// pair reads the descriptors that socketpair has made.
func pair(b []byte) (first, second int32, ok bool) {
	if len(b) != 8 {
		return 0, 0, false
	}
	return int32(binary.NativeEndian.Uint32(b)), int32(binary.NativeEndian.Uint32(b[4:])), true
}

// locate finds a path that a call names, where the trace knows from where.
func (t *Trace) locate(p *processState, dir int32, name string) string {
	if !t.named && !path.IsAbs(name) {
		return ""
	}
	return p.locate(dir, name)
}

// nameless says that the call has a descriptor that the kernel does not look at, or one whose name the trace does not
// know: that something else has taken its place is not seen, but for those of sockets in calls that make sockets' names.
func (t *Trace) nameless(c *call, e *event) bool {
	return !t.named && !c.socket() || c.number == unix.SYS_MMAP && e.numbers[3]&unix.MAP_ANONYMOUS != 0
}

// learn notes what a call that succeeded has changed.
func (t *Trace) learn(c *call, e *event, p *processState, located string) {
	ret := int32(e.record.Ret)
	switch c.number {
	case unix.SYS_CLOSE:
		p.files.forget(int32(e.numbers[0]))
	case unix.SYS_CHDIR, unix.SYS_FCHDIR:
		p.cwd = located
	case unix.SYS_CLOSE_RANGE:
		for fd, f := range p.files.all() {
			if uint64(fd) < e.numbers[0] || uint64(fd) > e.numbers[1] {
				continue
			}
			if e.numbers[2]&unix.CLOSE_RANGE_CLOEXEC != 0 {
				p.files.set(fd, openFile{name: f.name, cloexec: true})
			} else {
				p.files.forget(fd)
			}
		}
	case unix.SYS_FCNTL:
		learnFcntl(e, p, located)
	case unix.SYS_DUP3:
		p.opened(ret, located, e.numbers[2]&unix.O_CLOEXEC != 0)
	case unix.SYS_OPENAT:
		p.opened(ret, located, e.numbers[2]&unix.O_CLOEXEC != 0)
	default:
		if c.makes {
			p.opened(ret, located, c.name == "open" && e.numbers[1]&unix.O_CLOEXEC != 0)
		}
	}
}

func learnFcntl(e *event, p *processState, located string) {
	switch e.numbers[1] {
	case unix.F_DUPFD, unix.F_DUPFD_CLOEXEC:
		p.opened(int32(e.record.Ret), located, e.numbers[1] == unix.F_DUPFD_CLOEXEC)
	case unix.F_SETFD:
		p.opened(int32(e.numbers[0]), located, e.numbers[2]&unix.FD_CLOEXEC != 0)
	}
}

// restarts are the kernel's own codes for a call that a signal has interrupted (include/linux/errno.h): the process
// never sees them, as the call is made again, or fails with EINTR.
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
