package decode

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const (
	faultPending = 1 << 63
	faultMajor   = 1 << 62
)

// A page fault's record has its duration once the fault has ended.
func TestDurationOfAFault(t *testing.T) {
	for name, tc := range map[string]struct {
		took  uint64
		want  time.Duration
		major any
	}{
		"not measured": {0, -1, nil},
		"not ended":    {faultPending | 1234, -1, nil},
		"minor":        {500, 500, int64(0)},
		"major":        {faultMajor | 5_000_000, 5 * time.Millisecond, int64(1)},
	} {
		t.Run(name, func(t *testing.T) {
			b := kerneltest.Call(0, []uint64{0x7f00, 0x400, 6})
			var e kernel.Record
			if !e.Parse(b) {
				t.Fatal("malformed")
			}
			e.Head.Kind, e.Head.Duration = uint8(kernel.KindFault), tc.took
			var out tracefmt.Record
			decodeFault(&e, &out)
			var major any
			if a := out.Args[len(out.Args)-1]; a.Name == "major" {
				major = a.Number
			}
			if out.Took != tc.want || major != tc.major || e.Pending() != (tc.took&faultPending != 0) {
				t.Errorf("took %v, major %v, pending %v; want %v, %v", out.Took, major, e.Pending(), tc.want, tc.major)
			}
		})
	}
}

// A container's first process is in its cgroup before the mount that has the container's name exists; at the start of the
// container's program the mount is there.
func TestContainerOfAStart(t *testing.T) {
	const line = "812 790 8:1 /var/lib/kubelet/pods/0f7c5a4e/containers/web/5f3a9c11 /dev/termination-log rw - ext4 /dev/sda1 rw\n"
	proc := t.TempDir()
	mounts := filepath.Join(proc, "7", "mountinfo")
	if err := os.MkdirAll(filepath.Dir(mounts), 0o755); err != nil {
		t.Fatal(err)
	}
	d := New(Config{Node: process.Finder{Root: proc}, Calls: Calls([]Group{GroupSignal})})
	for _, step := range []struct {
		mounted, want string
		kind          kernel.Kind
	}{
		{"", "", kernel.KindExit},
		{"790 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "", kernel.KindExec},
		{line, "web", kernel.KindExec},
	} {
		if err := os.WriteFile(mounts, []byte(step.mounted), 0o600); err != nil {
			t.Fatal(err)
		}
		e := kernel.Record{Head: &kernel.Head{Kind: uint8(step.kind), Pid: 7, Tid: 8, Cgroup: 5}}
		if got := d.Decode(&e).Container; got != step.want {
			t.Errorf("with mounts %q the container is %q, want %q", step.mounted, got, step.want)
		}
	}
}

func TestErrnoName(t *testing.T) {
	for n, want := range map[int64]string{2: "ENOENT", 512: "ERESTARTSYS", 4000: "4000"} {
		if got := errnoName(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}

// Each signal that ends a process has a name, also a real-time signal.
func TestSignalOfAnExit(t *testing.T) {
	for status, want := range map[int64]string{9: "SIGKILL", 35: "SIGRT_3"} {
		d := New(Config{Node: process.Finder{Root: t.TempDir()}, Calls: Calls([]Group{GroupProcess})})
		out := d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindExit), Pid: 7, Tid: 7, Ret: status}})
		if i := slices.IndexFunc(out.Args, func(a tracefmt.Arg) bool { return a.Name == "signal" }); i < 0 || string(out.Args[i].Text) != want {
			t.Errorf("status %d: %+v, want %s", status, out.Args, want)
		}
	}
}

// A descriptor of openat2 has a name after an exec only if the call's struct open_how says that it is still open.
func TestOpenat2AndExec(t *testing.T) {
	const name = "/etc/shop"
	atCwd := int32(unix.AT_FDCWD)
	how := func(flags uint64) []byte {
		return append(binary.NativeEndian.AppendUint64(nil, flags), make([]byte, unix.SizeofOpenHow-8)...)
	}
	call := func(memory []byte) []*kernel.Record {
		e := &kernel.Record{
			Head:  &kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_OPENAT2, Ret: 3, First: uint16(len(name) + 1)},
			First: []byte(name), Address: memory,
		}
		e.Numbers = [6]uint64{uint64(uint32(atCwd)), 0x7000, 0x8000, unix.SizeofOpenHow}
		return []*kernel.Record{e}
	}
	operation := func() (all []*kernel.Record) {
		const openat2, request = 28, 0xa
		for _, b := range [][]byte{
			kerneltest.Submission(request, &kerneltest.Entry{Opcode: openat2, FD: unix.AT_FDCWD, Off: 0x8000, Len: unix.SizeofOpenHow}, nil, name),
			kerneltest.Result(request, openat2, 0, 3, 0),
		} {
			var e kernel.Record
			if !e.Parse(b) {
				t.Fatal("malformed record")
			}
			all = append(all, &e)
		}
		return all
	}
	for what, tc := range map[string]struct {
		records []*kernel.Record
		want    string
	}{
		"stays open":               {call(how(unix.O_RDWR)), name},
		"closed":                   {call(how(unix.O_RDWR | unix.O_CLOEXEC)), ""},
		"memory that is not read":  {call(nil), ""},
		"operation of an io_uring": {operation(), ""},
	} {
		t.Run(what, func(t *testing.T) {
			d := newTarget(t)
			for _, e := range tc.records {
				e.Head.Pid, e.Head.Tid, e.Head.Cgroup = 1, 1, 1
				d.Decode(e)
			}
			if got := d.read(1, 3); got != name {
				t.Errorf("before the exec the path is %q", got)
			}
			d.event(kernel.KindExec, 1, 0)
			if got := d.read(1, 3); got != tc.want {
				t.Errorf("after the exec the path is %q, want %q", got, tc.want)
			}
		})
	}
}

// A close that fails has closed the descriptor all the same: another file may have its number then.
func TestFailedClose(t *testing.T) {
	for name, tc := range map[string]struct {
		call uint16
		ret  int64
		want string
	}{
		"closed":               {unix.SYS_CLOSE, 0, ""},
		"its data was lost":    {unix.SYS_CLOSE, -int64(unix.EIO), ""},
		"interrupted":          {unix.SYS_CLOSE, -int64(unix.EINTR), ""},
		"it was closed before": {unix.SYS_CLOSE, -int64(unix.EBADF), ""},
		"a range, which fails before it closes anything": {unix.SYS_CLOSE_RANGE, -int64(unix.EINVAL), "/data/old"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTarget(t)
			d.open(7, "/data/old", 5)
			d.call(7, tc.call, "", tc.ret, 5, 5)
			if got := d.read(7, 5); got != tc.want {
				t.Errorf("path %q, want %q", got, tc.want)
			}
		})
	}
}

// The same by an io_uring.
func TestFailedCloseByAnIOUring(t *testing.T) {
	for name, ret := range map[string]int64{"closed": 0, "its data was lost": -int64(unix.EIO), "interrupted": -int64(unix.EINTR)} {
		t.Run(name, func(t *testing.T) {
			d := newTarget(t)
			d.open(7, "/data/old", 5)
			const opClose, request = 19, 0x1000
			entry := [64]byte{0: opClose, 4: 5}
			d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindUringSubmit), Call: opClose, Pid: 7, Tid: 7, Cgroup: 1}, Uring: &kernel.Uring{Request: request, Known: 1}, Entry: entry[:]})
			r := d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindUringEnd), Call: opClose, Pid: 7, Tid: 7, Cgroup: 1, Ret: ret}, Uring: &kernel.Uring{Request: request}})
			if string(r.Path) != "/data/old" {
				t.Errorf("the event of the close has the path %q", r.Path)
			}
			if got := d.read(7, 5); got != "" {
				t.Errorf("path %q of a descriptor that is closed", got)
			}
		})
	}
}

// A symbolic link is at its own path: its text is no path of the call, and a relative one starts from the link's directory.
func TestPathOfASymbolicLink(t *testing.T) {
	atCwd := int32(unix.AT_FDCWD)
	for _, text := range []string{"../lib/shop", "/lib/shop"} {
		d := newTarget(t)
		d.call(1, unix.SYS_CHDIR, "/home", 0)
		d.open(1, "/srv", 3)
		for dir, want := range map[uint64]string{3: "/srv/link", uint64(uint32(atCwd)): "/home/link"} {
			const link = "link"
			e := kernel.Record{
				Head:  &kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_SYMLINKAT, Pid: 1, Tid: 1, Cgroup: 1, First: uint16(len(text) + 1), Second: uint16(len(link) + 1)},
				First: []byte(text), Second: []byte(link), Numbers: [6]uint64{0x7000, dir, 0x8000},
			}
			if got := string(d.Decode(&e).Path); got != want {
				t.Errorf("a link with the text %s has the path %q, want %q", text, got, want)
			}
		}
	}
}

// With RESOLVE_IN_ROOT the directory is the root of the path.
func TestOpenat2InADirectory(t *testing.T) {
	for name, tc := range map[string]struct {
		resolve uint64
		path    string
		want    string
	}{
		"absolute":                      {0, "/etc/shop", "/etc/shop"},
		"absolute, in the directory":    {unix.RESOLVE_IN_ROOT, "/etc/shop", "/srv/etc/shop"},
		"beyond it":                     {unix.RESOLVE_IN_ROOT, "../../etc/shop", "/srv/etc/shop"},
		"relative, without this flag":   {unix.RESOLVE_NO_SYMLINKS, "../etc/shop", "/etc/shop"},
		"in a directory without a name": {unix.RESOLVE_IN_ROOT, "/etc/shop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTarget(t)
			dir := uint64(3)
			if d.open(1, "/srv", 3); tc.want == "" {
				dir = 4
			}
			how := binary.NativeEndian.AppendUint64(make([]byte, 16), tc.resolve)
			e := kernel.Record{
				Head:  &kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_OPENAT2, Pid: 1, Tid: 1, Cgroup: 1, Ret: 5, First: uint16(len(tc.path) + 1)},
				First: []byte(tc.path), Address: how, Numbers: [6]uint64{dir, 0x7000, 0x8000, unix.SizeofOpenHow},
			}
			if got := string(d.Decode(&e).Path); got != tc.want {
				t.Errorf("path %q, want %q", got, tc.want)
			}
			if got := d.read(1, 5); got != tc.want {
				t.Errorf("later the path is %q, want %q", got, tc.want)
			}
		})
	}
}

// The kernel ignores the upper half of a number of 32 bits, which may be anything.
func TestNumbersOf32Bits(t *testing.T) {
	const upper = 7 << 32
	for name, change := range map[string]func(target){
		"a range":                func(d target) { d.call(1, unix.SYS_CLOSE_RANGE, "", 0, upper|3, upper|3) },
		"a range up to a number": func(d target) { d.call(1, unix.SYS_CLOSE_RANGE, "", 0, 3, upper|3) },
		"a flag for exec": func(d target) {
			d.call(1, unix.SYS_FCNTL, "", 0, 3, upper|unix.F_SETFD, unix.FD_CLOEXEC)
			d.event(kernel.KindExec, 1, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTarget(t)
			d.open(1, "/three", 3)
			d.open(1, "/four", 4)
			change(d)
			if three, four := d.read(1, 3), d.read(1, 4); three != "" || four != "/four" {
				t.Errorf("the closed file is %q, and the open one %q", three, four)
			}
		})
	}
}
