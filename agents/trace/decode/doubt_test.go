package decode

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
)

// A call is recorded before the state of its process is read. What it changes has its name in /proc only from then on: an earlier call
// has no path. Other descriptors have theirs, and so has a child what its parent has not changed.
func TestDoubt(t *testing.T) {
	const parent, child, read = 7, 8, 100
	call := func(number uint16, ret int64, numbers ...uint64) kernel.Record {
		e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: number, Ret: ret}}
		copy(e.Numbers[:], numbers)
		return e
	}
	at := int32(unix.AT_FDCWD)
	stat := func(pid uint32, time uint64, fd int32, name string) kernel.Record {
		e := call(uint16(fstatat), 0, uint64(uint32(fd)))
		e.Head.Pid, e.Head.Time, e.First, e.Head.First = pid, time, []byte(name), uint16(len(name)+1)
		return e
	}
	operation := func(opcode uint8) kernel.Record {
		var e kernel.Record
		if !e.Parse(kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opcode, FD: 3}, nil)) {
			t.Fatal("malformed record")
		}
		return e
	}
	pair := call(unix.SYS_SOCKETPAIR, 0)
	pair.Address = binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 9), 3)
	directories := map[int32]string{3: "/three/x", 4: "/four/x", at: "/home/x"}
	for name, tc := range map[string]struct {
		change  kernel.Record
		changed []int32
	}{
		"nothing":                    {call(unix.SYS_READ, 3, 3), nil},
		"a close":                    {call(unix.SYS_CLOSE, 0, 3), []int32{3}},
		"a close that fails":         {call(unix.SYS_CLOSE, -int64(unix.EIO), 3), []int32{3}},
		"an open":                    {call(unix.SYS_OPENAT, 3), []int32{3}},
		"a copy":                     {call(unix.SYS_DUP3, 3, 4, 3), []int32{3}},
		"a copy by fcntl":            {call(unix.SYS_FCNTL, 3, 4, unix.F_DUPFD), []int32{3}},
		"a range":                    {call(unix.SYS_CLOSE_RANGE, 0, 4, ^uint64(0)), []int32{4}},
		"a pair":                     {pair, []int32{3}},
		"a connection":               {call(unix.SYS_CONNECT, 0, 4), []int32{4}},
		"another working directory":  {call(unix.SYS_CHDIR, 0), []int32{at}},
		"an operation that reads":    {operation(22), nil},
		"an operation that closes 3": {operation(19), []int32{3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			dir := filepath.Join(proc, "7")
			if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
				t.Fatal(err)
			}
			for link, to := range map[string]string{"fd/3": "/three", "fd/4": "/four", "cwd": "/home"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			d := New(Config{Node: process.Finder{Root: proc}, Calls: Calls([]Group{GroupFile, GroupIO, GroupNetwork}), TracksFiles: true})
			d.AddProcess(parent, func(int32) bool { return false })
			tc.change.Head.Pid, tc.change.Head.Time = parent, 50
			d.Doubt(&tc.change, read)
			want := func(what string, pid uint32, time uint64, doubtful bool) {
				t.Helper()
				for fd, want := range directories {
					for _, n := range tc.changed {
						if n == fd && doubtful {
							want = ""
						}
					}
					e := stat(pid, time, fd, "x")
					if got := string(d.Decode(&e).Path); got != want {
						t.Errorf("%s the path from %d is %q, want %q", what, fd, got, want)
					}
				}
			}
			want("before /proc was read", parent, 40, true)
			marked := call(unix.SYS_CLOSE_RANGE, 0, 3, 4, unix.CLOSE_RANGE_CLOEXEC)
			marked.Head.Pid, marked.Head.Time = parent, 41
			d.Decode(&marked)
			d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindFork), Pid: child, Tid: child, Parent: parent, Time: 42}})
			want("in a child that is older than that", child, 43, true)
			want("later, in such a child,", child, read+1, true)
			want("after /proc was read", parent, read, false)
			d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindFork), Pid: child + 1, Tid: child + 1, Parent: parent, Time: read + 2}})
			want("in a later child", child+1, read+3, false)
		})
	}
}

// A call that began before a change, and ends after /proc was read, has another file or directory than the one that was read.
func TestDoubtOfACallThatLasts(t *testing.T) {
	const pid = 7
	ms := func(n uint64) uint64 { return n * uint64(time.Millisecond) }
	at := int32(unix.AT_FDCWD)
	proc := t.TempDir()
	if err := os.MkdirAll(filepath.Join(proc, "7", "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"fd/3": "/three", "fd/4": "/four", "cwd": "/home"} {
		if err := os.Symlink(to, filepath.Join(proc, "7", link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		duration uint64 // in milliseconds, up to 30; /proc was read at 20, and the changes were made at 9 and 10
		want     map[int32]string
		wantLost uint64
	}{
		"it began before the trace":  {0, map[int32]string{3: "", 4: "/four/x", at: ""}, 2},
		"it began before the change": {25, map[int32]string{3: "", 4: "/four/x", at: ""}, 2},
		"it began after the change":  {15, map[int32]string{3: "/three/x", 4: "/four/x", at: "/home/x"}, 0},
		"it began after the reading": {5, map[int32]string{3: "/three/x", 4: "/four/x", at: "/home/x"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Config{Node: process.Finder{Root: proc}, Calls: Calls([]Group{GroupFile, GroupIO}), TracksFiles: true, Timed: true})
			d.AddProcess(pid, func(int32) bool { return false })
			for _, change := range []kernel.Record{
				{Head: &kernel.Head{Call: unix.SYS_DUP3, Ret: 3, Time: ms(10)}, Numbers: [6]uint64{4, 3}},
				{Head: &kernel.Head{Call: unix.SYS_DUP3, Ret: 3, Time: ms(9)}, Numbers: [6]uint64{4, 3}},
				{Head: &kernel.Head{Call: unix.SYS_CHDIR, Time: ms(10)}},
				{Head: &kernel.Head{Call: unix.SYS_CHDIR, Time: ms(9)}},
			} {
				change.Head.Kind, change.Head.Pid = uint8(kernel.KindCall), pid
				d.Doubt(&change, ms(20))
			}
			got := map[int32]string{}
			for fd := range tc.want {
				head := kernel.Head{Kind: uint8(kernel.KindCall), Call: uint16(fstatat), Pid: pid, Time: ms(30), Duration: ms(tc.duration), First: 2}
				got[fd] = string(d.Decode(&kernel.Record{Head: &head, Numbers: [6]uint64{uint64(uint32(fd))}, First: []byte("x")}).Path)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || d.Unnamed() != tc.wantLost {
				t.Errorf("%d are unnamed, want %d; paths (-want +got):\n%s", d.Unnamed(), tc.wantLost, diff)
			}
		})
	}
}

// A process whose start was not recorded is read from /proc at its first event, which is some milliseconds old by then. What it has
// changed in between has its name in /proc only from then on.
func TestDoubtOfALateProcess(t *testing.T) {
	const pid = 7
	record := func(process uint32, time uint64, number uint16, ret int64, numbers ...uint64) *kernel.Record {
		e := &kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: number, Pid: process, Time: time, Ret: ret}}
		copy(e.Numbers[:], numbers)
		return e
	}
	path := func(d *Decoder, time uint64, fd int32) string {
		e := record(pid, time, uint16(fstatat), 0, uint64(uint32(fd)))
		e.First, e.Head.First = []byte("x"), 2
		return string(d.Decode(e).Path)
	}
	at := int32(unix.AT_FDCWD)
	changes := []*kernel.Record{record(pid, 50, unix.SYS_DUP3, 3, 4, 3), record(pid, 51, unix.SYS_CHDIR, 0)}
	for name, tc := range map[string]struct {
		ahead []*kernel.Record
		want  map[int32]string // before the changes
	}{
		"it changes something":             {changes, map[int32]string{3: "", 4: "/four/x", at: ""}},
		"another process does":             {[]*kernel.Record{record(8, 50, unix.SYS_DUP3, 3, 4, 3)}, map[int32]string{3: "/three/x", 4: "/four/x", at: "/home/x"}},
		"too many records":                 {slices.Repeat([]*kernel.Record{record(8, 50, unix.SYS_READ, 0, 3)}, maxAhead+1), map[int32]string{3: "", 4: "", at: ""}},
		"as many as can be looked through": {slices.Repeat([]*kernel.Record{record(8, 50, unix.SYS_READ, 0, 3)}, maxAhead), map[int32]string{3: "/three/x", 4: "/four/x", at: "/home/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			dir := filepath.Join(proc, "7")
			if err := os.MkdirAll(filepath.Join(dir, "fd"), 0o755); err != nil {
				t.Fatal(err)
			}
			for link, to := range map[string]string{"fd/3": "/three", "fd/4": "/four", "cwd": "/home"} {
				if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			d := New(Config{Node: process.Finder{Root: proc}, Calls: Calls([]Group{GroupFile, GroupIO}), TracksFiles: true})
			d.LookAhead(func(_ uint64, visit func(*kernel.Record) bool) bool {
				for _, e := range tc.ahead {
					if !visit(e) {
						return false
					}
				}
				return true
			})
			got := map[int32]string{}
			for fd := range tc.want {
				got[fd] = path(d, 40, fd)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("paths before (-want +got):\n%s", diff)
			}
			for fd, want := range map[int32]string{3: "/three/x", 4: "/four/x", at: "/home/x"} {
				if got := path(d, kernel.BootTime(), fd); got != want {
					t.Errorf("later the path from %d is %q, want %q", fd, got, want)
				}
			}
		})
	}
}
