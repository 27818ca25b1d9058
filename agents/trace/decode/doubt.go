package decode

import (
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Doubt notes which descriptors a record changes, and whether it changes the working directory. The state of the record's process was
// read from /proc after the record, at the time read, in nanoseconds since boot. So events before the record have other names than those
// that were read. Call Doubt for all such records before the first call of Decode.
func (d *Decoder) Doubt(e *kernel.Record, read uint64) {
	if p := d.resolver.processes[e.Head.Pid]; p != nil {
		d.doubtRecord(p, e, read)
	}
}

// Ahead visits the records that were not decoded yet and are not later than a time, in nanoseconds since boot, until visit returns
// false. It reports whether it has visited all.
type Ahead func(until uint64, visit func(*kernel.Record) bool) bool

// maxAhead bounds the records that are looked through for one process: a Pod can start processes all the time.
const maxAhead = 1 << 12

// doubtLate is Doubt for a process that was read at its first event. If there are too many records to look through, all of its names
// are doubtful.
func (d *Decoder) doubtLate(ahead Ahead, pid uint32, p *processState, read uint64) {
	n := 0
	whole := ahead(read, func(e *kernel.Record) bool {
		if n++; n > maxAhead {
			return false
		}
		if e.Head.Pid == pid {
			d.doubtRecord(p, e, read)
		}
		return true
	})
	if !whole {
		p.read = read
		p.doubtDirectory(read)
		p.doubtFiles(0, ^uint32(0), read)
	}
}

func (d *Decoder) doubtRecord(p *processState, e *kernel.Record, read uint64) {
	if e.TCP != nil {
		return
	}
	p.read = read
	if kernel.Kind(e.Head.Kind) == kernel.KindUringSubmit {
		if o := operationOf(int(e.Head.Call)); o != nil && o.changesFiles() {
			p.doubtFiles(0, ^uint32(0), read) // which descriptor it changes is known when it ends
		}
	} else if c := d.calls[e.Head.Call]; kernel.Kind(e.Head.Kind) == kernel.KindCall && c != nil {
		p.doubtCall(c, e)
	}
}

// changesFiles reports whether a call can change which file a descriptor is, its name or the working directory.
func (c *Call) changesFiles() bool {
	switch c.Number {
	case unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE, unix.SYS_FCNTL, unix.SYS_CHDIR, unix.SYS_FCHDIR, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND:
		return true
	}
	return c.returnsFD
}

func (p *processState) doubtCall(c *Call, e *kernel.Record) {
	at := e.Head.Time
	switch c.Number {
	case unix.SYS_CLOSE, unix.SYS_CONNECT, unix.SYS_BIND:
		p.doubt(int32(e.Numbers[0]), at)
	case unix.SYS_CLOSE_RANGE:
		p.doubtFiles(uint32(e.Numbers[0]), uint32(e.Numbers[1]), at)
	case unix.SYS_CHDIR, unix.SYS_FCHDIR:
		p.doubtDirectory(at)
	case unix.SYS_SOCKETPAIR:
		if a, b, ok := pair(e.Address); ok {
			p.doubt(a, at)
			p.doubt(b, at)
		}
	default:
		if c.changesFiles() {
			p.doubt(int32(e.Head.Ret), at)
		}
	}
}

// doubtFiles doubts a range of descriptors, as doubt does.
func (p *processState) doubtFiles(first, last uint32, changed uint64) {
	for fd := range p.files.all() {
		if uint32(fd) >= first && uint32(fd) <= last {
			p.doubt(fd, changed)
		}
	}
}

// doubt doubts a descriptor that was changed at a time, in nanoseconds since boot. Calls that began before have another file, also those
// that end after the reading of /proc.
func (p *processState) doubt(fd int32, changed uint64) {
	if f := p.files.get(fd); f != (openFile{}) {
		f.doubtful, f.since = true, f.since.latest(stampOf(changed))
		p.files.set(fd, f)
	}
}

func (p *processState) doubtDirectory(changed uint64) {
	p.cwdDoubtful, p.cwdSince = true, p.cwdSince.latest(stampOf(changed))
}

// settle ends all doubts with the first event that is not older than the reading of /proc.
func (p *processState) settle(at uint64) {
	if p.read == 0 || at < p.read {
		return
	}
	p.read, p.cwdDoubtful = 0, false
	for fd, f := range p.files.all() {
		if f.doubtful {
			f.doubtful = false
			p.files.set(fd, f)
		}
	}
}

// forgetLater forgets the files of a new process whose names came while it was made. Most are not its own: its parent opened them after
// the kernel had copied the descriptors. So they do not count. began is in nanoseconds since boot; zero forgets none.
func (p *processState) forgetLater(began uint64) {
	if began == 0 {
		return
	}
	for fd, f := range p.files.all() {
		if f.since.after(stampOf(began)) {
			p.files.forget(fd)
		}
	}
}

// forgetDoubtful forgets the doubtful files of a new process: which ones its parent had at the fork is not known.
func (p *processState) forgetDoubtful() {
	for fd, f := range p.files.all() {
		if f.doubtful {
			p.files.forget(fd)
		}
	}
}
