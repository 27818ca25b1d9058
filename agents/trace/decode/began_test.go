package decode

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
)

// The kernel takes the file of a descriptor, and the working directory, when a call begins. A call that lasts has no name that came
// meanwhile, and that is counted.
func TestNamesThatCameDuringACall(t *testing.T) {
	const ms = uint64(time.Millisecond)
	cwd := int32(unix.AT_FDCWD)
	at := uint64(uint32(cwd))
	for name, tc := range map[string]struct {
		began, ended uint64 // in milliseconds; the descriptor and the directory change at 5
		ret          int64
		unmeasured   bool
		want         string // of the file and of the directory
		wantLost     uint64
	}{
		"before":                             {began: 2, ended: 4, want: "old"},
		"meanwhile":                          {began: 2, ended: 10, wantLost: 2},
		"after":                              {began: 6, ended: 10, want: "new"},
		"it began before the trace":          {ended: 10, unmeasured: true, wantLost: 2},
		"it has failed before the trace":     {ended: 10, unmeasured: true, ret: -int64(unix.EBADF), want: "new"},
		"it began before the trace, no news": {ended: 4, unmeasured: true, want: "old"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decoderOf(0, GroupFile, GroupIO)
			d.resolver.processes[7] = newProcess(&d.resolver.names)
			d.resolver.processes[7].enter("/old")
			d.resolver.processes[7].opened(5, "/old", false)
			d.resolver.processes[7].opened(6, "/new", false)
			call := func(number uint16, path string, ret int64, began, ended uint64, numbers ...uint64) string {
				e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: number, Pid: 7, Ret: ret, Time: ended * ms}, First: []byte(path)}
				if began > 0 {
					e.Head.Duration = (ended - began) * ms
				}
				if path != "" {
					e.Head.First = uint16(len(path) + 1)
				}
				copy(e.Numbers[:], numbers)
				return string(d.Decode(&e).Path)
			}
			change := func() {
				call(unix.SYS_DUP3, "", 5, 4, 5, 6, 5)
				call(unix.SYS_CHDIR, "/new", 0, 4, 5)
			}
			if tc.ended > 5 {
				change()
			}
			began := tc.began
			if tc.unmeasured {
				began = 0
			}
			file, dir := "", ""
			if tc.want != "" {
				file, dir = "/"+tc.want, "/"+tc.want+"/x"
			}
			if got := call(unix.SYS_WRITE, "", tc.ret, began, tc.ended, 5); got != file {
				t.Errorf("the path of a descriptor is %q, want %q", got, file)
			}
			if got := call(unix.SYS_FACCESSAT, "x", tc.ret, began, tc.ended, at); got != dir {
				t.Errorf("the path from the working directory is %q, want %q", got, dir)
			}
			if d.Unnamed() != tc.wantLost {
				t.Errorf("%d unnamed, want %d", d.Unnamed(), tc.wantLost)
			}
		})
	}
}

// A directory that came meanwhile does not count if the call's path does not depend on it.
func TestNamesThatCameDuringACallOnAnotherDirectory(t *testing.T) {
	d := decoderOf(0, GroupFile, GroupIO)
	p := newProcess(&d.resolver.names)
	d.resolver.processes[7] = p
	p.opened(5, "/dir", false)
	p.enter("/new")
	p.cwdSince = stampOf(uint64(5 * time.Millisecond))
	head := kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_FACCESSAT, Pid: 7, First: 2, Time: uint64(time.Second), Duration: uint64(999 * time.Millisecond)}
	got := string(d.Decode(&kernel.Record{Head: &head, First: []byte("x"), Numbers: [6]uint64{5}}).Path)
	if got != "/dir/x" || d.Unnamed() != 0 {
		t.Errorf("the path is %q, and %d are unnamed; want /dir/x and none", got, d.Unnamed())
	}
}

// The kernel frees a descriptor's number when a close begins, and another thread can get it before the close ends. The close has the old
// name, and the new file keeps its own.
func TestNumberThatIsUsedAgainDuringAClose(t *testing.T) {
	const ms = uint64(time.Millisecond)
	for name, number := range map[string]uint16{"an open": unix.SYS_OPENAT, "a copy": unix.SYS_DUP, "an accept": unix.SYS_ACCEPT4} {
		t.Run(name, func(t *testing.T) {
			d := decoderOf(0, GroupFile, GroupIO, GroupNetwork)
			p := newProcess(&d.resolver.names)
			d.resolver.processes[7] = p
			p.opened(5, "/old", false)
			p.opened(6, "/other", false)
			left := d.resolver.names.left
			call := func(number uint16, ret int64, began, ended uint64, path string, numbers ...uint64) string {
				e := kernel.Record{First: []byte(path), Head: &kernel.Head{
					Kind: uint8(kernel.KindCall), Call: number, Pid: 7, Ret: ret, Time: ended * ms, Duration: (ended - began) * ms, First: uint16(len(path) + 1),
				}}
				copy(e.Numbers[:], numbers)
				return string(d.Decode(&e).Path)
			}
			call(number, 5, 4, 6, "/new", 6)
			now := p.files.get(5).name
			if got := call(unix.SYS_CLOSE, 0, 3, 8, "", 5); got != "/old" {
				t.Errorf("the close has the path %q, want /old", got)
			}
			if got := call(unix.SYS_READ, 0, 9, 10, "", 5); got != now || now == "" {
				t.Errorf("then the descriptor has the path %q, want %q", got, now)
			}
			if got := call(unix.SYS_CLOSE, 0, 11, 12, "", 5); got != now {
				t.Errorf("its own close has the path %q, want %q", got, now)
			}
			if got := call(unix.SYS_READ, 0, 13, 14, "", 5); got != "" || d.Unnamed() > 0 || d.resolver.names.left != left+len("/old") {
				t.Errorf("at last the path is %q, %d are unnamed and %d bytes are left", got, d.Unnamed(), d.resolver.names.left-left)
			}
		})
	}
}

// A child has the files that its parent had while the kernel made the child.
func TestNamesThatCameDuringAFork(t *testing.T) {
	const ms = uint64(time.Millisecond)
	for name, tc := range map[string]struct {
		took uint64 // in milliseconds, up to 10
		want string
	}{
		"before":             {took: 3, want: "/new"},
		"meanwhile":          {took: 6},
		"it is not measured": {want: "/new"},
	} {
		t.Run(name, func(t *testing.T) {
			d := decoderOf(0, GroupFile, GroupIO)
			d.resolver.processes[7] = newProcess(&d.resolver.names)
			for fd, name := range map[int32]string{5: "/old", 6: "/new"} {
				d.resolver.processes[7].opened(fd, name, false)
			}
			dup := kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_DUP3, Pid: 7, Ret: 5, Time: 5 * ms, Duration: 1}
			d.Decode(&kernel.Record{Head: &dup, Numbers: [6]uint64{6, 5}})
			d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindFork), Pid: 8, Tid: 8, Parent: 7, Time: 10 * ms, Duration: tc.took * ms}})
			read := kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_READ, Pid: 8, Time: 11 * ms, Duration: 1}
			if got := string(d.Decode(&kernel.Record{Head: &read, Numbers: [6]uint64{5}}).Path); got != tc.want || d.Unnamed() > 0 {
				t.Errorf("the child's path is %q, and %d are unnamed; want %q and none", got, d.Unnamed(), tc.want)
			}
		})
	}
}

// An operation of an io_uring has the file of its submission, also if it has several results.
func TestNamesThatCameDuringAnOperation(t *testing.T) {
	d := decoderOf(0, GroupFile, GroupIO, GroupNetwork)
	d.resolver.processes[7] = newProcess(&d.resolver.names)
	d.resolver.processes[7].opened(5, "tcp:10.0.0.9:80", false)
	d.resolver.processes[7].opened(6, "tcp:10.0.0.8:80", false)
	at := uint64(0)
	path := func(b []byte) string {
		at += uint64(time.Millisecond)
		head := kerneltest.Head(b)
		head.Time, head.Pid = at, 7
		var e kernel.Record
		if !e.Parse(b) {
			t.Fatal("malformed")
		}
		if r := d.Decode(&e); r != nil {
			return string(r.Path)
		}
		return ""
	}
	const opRecv = 27
	path(kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opRecv, FD: 5}, nil))
	before := path(kerneltest.Result(0, 0, 0, 1, resultMore))
	dup := kerneltest.Call(unix.SYS_DUP3, []uint64{6, 5, 0})
	kerneltest.Head(dup).Ret, kerneltest.Head(dup).Duration = 5, 1
	path(dup)
	for range 2 {
		if got := path(kerneltest.Result(0, 0, 0, 1, resultMore)); got == "tcp:10.0.0.8:80" {
			t.Errorf("the path is %q, which came after the submission; before it was %q", got, before)
		}
	}
	if before != "tcp:10.0.0.9:80" {
		t.Errorf("before, the path is %q", before)
	}
}
