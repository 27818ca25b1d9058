package decode

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// heap returns the bytes of the objects that are in use.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// target decodes events of a target that the tests invent.
type target struct {
	*Decoder
	t *testing.T
}

func newTarget(t *testing.T) target {
	t.Helper()
	return target{New(Config{Node: process.Finder{Root: t.TempDir()}, Calls: Calls([]Group{GroupFile, GroupIO}), TracksFiles: true}), t}
}

func (d target) call(pid uint32, number uint16, path string, ret int64, numbers ...uint64) string {
	d.t.Helper()
	e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: number, Pid: pid, Tid: pid, Cgroup: 1, Ret: ret}, First: []byte(path)}
	if path != "" {
		e.Head.First = uint16(len(path) + 1)
	}
	copy(e.Numbers[:], numbers)
	return string(d.Decode(&e).Path)
}

func (d target) open(pid uint32, path string, fd int) string {
	d.t.Helper()
	at := int32(unix.AT_FDCWD)
	return d.call(pid, unix.SYS_OPENAT, path, int64(fd), uint64(uint32(at)))
}

func (d target) read(pid uint32, fd int) string {
	d.t.Helper()
	return d.call(pid, unix.SYS_READ, "", 1, uint64(fd))
}

// event decodes an event of a process with one thread.
func (d target) event(kind kernel.Kind, pid, parent uint32) {
	h := kernel.Head{Kind: uint8(kind), Pid: pid, Tid: pid, Parent: parent, Cgroup: 1}
	if kind == kernel.KindExit {
		h.Last = 1
	}
	d.Decode(&kernel.Record{Head: &h})
}

// longPath returns the longest path of a call, another one for each pair of numbers.
func longPath(a, b int) string {
	head := fmt.Sprintf("/%d/%d/", a, b)
	return head + strings.Repeat("b", maxPath-1-len(head))
}

// checkHeap checks how much memory was taken since before.
func checkHeap(t *testing.T, before, most int) {
	t.Helper()
	took := heap() - before
	t.Logf("took %d KiB", took>>10)
	if took > most {
		t.Errorf("took %d KiB, want at most %d", took>>10, most>>10)
	}
}

// Names that a target makes long and many take a bounded amount of memory. Further ones are unknown, and counted. No name is
// wrong: a descriptor whose new name has no room does not keep the old one.
func TestMemoryOfNames(t *testing.T) {
	// Kept whole, the texts of 4 processes would take 64 MiB, twice the bound.
	for name, tc := range map[string]struct {
		processes, files int
		path             func(pid, fd int) string
	}{
		"long paths":                   {4, maxFiles, longPath},
		"many descriptors":             {120, maxFiles, func(int, int) string { return "/a" }},
		"many processes":               {maxProcesses, lowFiles, func(_, fd int) string { return "/tmp/" + strconv.Itoa(fd) }},
		"short names of long texts":    {4, maxFiles, func(pid, fd int) string { return fmt.Sprintf("/%d/%d%s", pid, fd, strings.Repeat("/", 4000)) }},
		"short names after going back": {4, maxFiles, func(pid, fd int) string { return fmt.Sprintf("/%s/../%d/%d", strings.Repeat("b", 4000), pid, fd) }},
	} {
		t.Run(name, func(t *testing.T) {
			d, before := newTarget(t), heap()
			for pid := range tc.processes {
				for fd := range tc.files {
					path := tc.path(pid, fd)
					if got := d.open(uint32(pid+1), path, fd); got != filepath.Clean(path) {
						t.Fatalf("the event of an open has %q, want %q", got, path)
					}
				}
			}
			checkHeap(t, before, maxNames*5/4+4<<20)
			last := tc.files - 1
			if got, want := d.read(1, last), filepath.Clean(tc.path(0, last)); got != want && (got != "" || d.Unnamed() == 0) {
				t.Errorf("path %q, want %q; %d names are missing", got, want, d.Unnamed())
			}
			d.open(1, "/x", 3)
			d.resolver.names.left = min(d.resolver.names.left, 8)
			missing := d.Unnamed()
			d.open(1, longPath(1, 1), 3)
			if got := d.read(1, 3); got != "" || d.Unnamed() == missing {
				t.Errorf("a descriptor without room has the path %.20q; %d names are missing, %d before", got, d.Unnamed(), missing)
			}
			for pid := range tc.processes {
				d.event(kernel.KindExit, uint32(pid+1), 0)
			}
			runtime.KeepAlive(d)
		})
	}
}

// A fork takes no memory for each open file until one of the two processes changes its own.
func TestMemoryOfForks(t *testing.T) {
	const parent, children = 10, 1000
	d := newTarget(t)
	for fd := range maxFiles {
		d.open(parent, "/srv/"+strconv.Itoa(fd), fd)
	}
	before, left := heap(), d.resolver.names.left
	for c := range uint32(children) {
		d.event(kernel.KindFork, 1000+c, parent)
	}
	checkHeap(t, before, 1<<20)
	d.call(1000, unix.SYS_CLOSE, "", 0, 5)
	d.open(parent, "/other", 6)
	for _, tc := range []struct {
		pid  uint32
		fd   int
		want string
	}{{parent, 5, "/srv/5"}, {1000, 5, ""}, {1000, 6, "/srv/6"}, {parent, 6, "/other"}, {1001, 6, "/srv/6"}, {1999, maxFiles - 1, "/srv/4095"}} {
		if got := d.read(tc.pid, tc.fd); got != tc.want {
			t.Errorf("descriptor %d of process %d has path %q, want %q", tc.fd, tc.pid, got, tc.want)
		}
	}
	if d.Unnamed() > 0 {
		t.Errorf("%d names are missing", d.Unnamed())
	}
	// Each child changes its files: then there is no room for all of them.
	for c := range uint32(children) {
		d.call(1000+c, unix.SYS_CLOSE, "", 0, 7)
		if got := d.read(1000+c, 8); got != "/srv/8" && (got != "" || d.Unnamed() == 0) {
			t.Fatalf("child %d: path %q; %d names are missing", c, got, d.Unnamed())
		}
	}
	checkHeap(t, before, maxNames)
	if d.Unnamed() == 0 {
		t.Error("no name is missing")
	}
	for c := range uint32(children) {
		d.event(kernel.KindExit, 1000+c, 0)
	}
	if d.open(parent, "/srv/6", 6); d.resolver.names.left != left {
		t.Errorf("%d bytes are left after the children's end, want %d", d.resolver.names.left, left)
	}
}

// Whatever processes do, the memory of their names comes back when they end.
func TestMemoryComesBack(t *testing.T) {
	for _, room := range []int{maxNames, 20 << 10} {
		d, random := newTarget(t), rand.New(rand.NewPCG(1, 2))
		d.resolver.names.left = room
		for range 50_000 {
			pid, fd := 1+random.Uint32N(40), random.IntN(2*lowFiles)
			switch random.IntN(10) {
			case 0:
				d.event(kernel.KindFork, pid, 1+random.Uint32N(40))
			case 1:
				d.event(kernel.KindExit, pid, 0)
			case 2:
				d.event(kernel.KindExec, pid, 0)
			case 3:
				d.call(pid, unix.SYS_CHDIR, "/"+strings.Repeat("d", random.IntN(200)), 0)
			case 4:
				d.call(pid, unix.SYS_CLOSE_RANGE, "", 0, uint64(fd), uint64(fd+10), uint64(random.IntN(2)*unix.CLOSE_RANGE_CLOEXEC))
			case 5, 6:
				d.call(pid, unix.SYS_CLOSE, "", 0, uint64(fd))
			default:
				d.open(pid, "/"+strings.Repeat("f", random.IntN(200)), fd)
			}
			if d.resolver.names.left < 0 {
				t.Fatalf("%d bytes are left", d.resolver.names.left)
			}
		}
		d.ForgetCgroup(1)
		if got := d.resolver.names.left; got != room {
			t.Errorf("%d of %d bytes came back", got, room)
		}
		if missing := d.Unnamed() > 0; missing != (room < maxNames) {
			t.Errorf("%d names are missing with room for %d bytes", d.Unnamed(), room)
		}
	}
}

// A process that there is no room for is read again when others had events, and its names take no memory for ever.
func TestProcessesWithoutRoom(t *testing.T) {
	d := newTarget(t)
	for pid := range uint32(maxProcesses) {
		d.event(kernel.KindFork, pid+1, 1)
	}
	left := d.resolver.names.left
	const a, b = maxProcesses + 1, maxProcesses + 2
	d.open(a, "/etc/passwd", 3)
	if got := d.read(a, 3); got != "/etc/passwd" {
		t.Errorf("path %q between no other events", got)
	}
	d.open(b, "/etc/group", 3)
	if got := d.read(a, 3); got != "" {
		t.Errorf("path %q after another process's events", got)
	}
	d.event(kernel.KindFork, b, a)
	d.event(kernel.KindExit, a, 0)
	if got := d.resolver.names.left; got != left || d.Unnamed() == 0 {
		t.Errorf("%d bytes are left, want %d; %d names are missing", got, left, d.Unnamed())
	}
}

// Processes whose ends were not recorded do not keep the room for others for ever.
func TestEndedProcessesMakeRoom(t *testing.T) {
	d := newTarget(t)
	if err := os.MkdirAll(filepath.Join(d.resolver.finder.Root, "1", "fd"), 0o755); err != nil { // it lives
		t.Fatal(err)
	}
	d.open(1, "/srv/first", 3)
	for pid := range uint32(maxProcesses + sweepAfter) {
		d.event(kernel.KindFork, pid+2, 1)
	}
	if n := len(d.resolver.processes); n > sweepAfter || d.Unnamed() == 0 {
		t.Errorf("%d processes are known, %d names are missing", n, d.Unnamed())
	}
	if got := d.read(1, 3); got != "/srv/first" {
		t.Errorf("path %q of the living process", got)
	}
}

// A process can enter folders deeper than any path of a call.
func TestDeepDirectory(t *testing.T) {
	d, before := newTarget(t), heap()
	d.call(1, unix.SYS_CHDIR, "/", 0)
	at, longest := "/", 0
	name := strings.Repeat("d", 255)
	for range 1000 {
		at = filepath.Join(at, name)
		got := d.call(1, unix.SYS_CHDIR, name, 0)
		if got != at && (got != "" || d.Unnamed() == 0 || len(at) < maxPath) {
			t.Fatalf("a path of %d bytes, want %d; %d names are missing", len(got), len(at), d.Unnamed())
		}
		longest = max(longest, len(got))
	}
	if longest < maxPath-256 || d.open(1, "file", 3) != "" {
		t.Errorf("the longest path has %d bytes, and is known after it was too long", longest)
	}
	d.call(1, unix.SYS_CHDIR, "/", 0)
	if got := d.open(1, "file", 3); got != "/file" {
		t.Errorf("path %q in a known folder", got)
	}
	checkHeap(t, before, 1<<20)
}

// Operations whose results a process does not take: their paths take a bounded amount of memory, and the ones that are
// forgotten are counted.
func TestMemoryOfOperations(t *testing.T) {
	const linkat = 39
	for name, tc := range map[string]struct {
		path      string
		forgotten bool
	}{
		"long paths":  {longPath(1, 1), true},
		"short paths": {"/etc/passwd", false},
	} {
		t.Run(name, func(t *testing.T) {
			d, before := newTarget(t), heap()
			for i := range uint64(maxSubmitted) {
				e := kernel.Record{
					Head:  &kernel.Head{Kind: uint8(kernel.KindUringSubmit), Call: linkat, Pid: 1, Cgroup: 1},
					Uring: &kernel.Uring{Request: i + 1, UserData: i, Known: 1}, Entry: make([]byte, 64), First: []byte(tc.path), Second: []byte(tc.path),
				}
				if d.Decode(&e) != nil {
					t.Fatal("an event at a submission")
				}
			}
			checkHeap(t, before, maxSubmittedBytes*5/4)
			waiting := uint64(len(d.urings.byRequest))
			if d.Forgotten()+waiting != maxSubmitted || (d.Forgotten() > 0) != tc.forgotten {
				t.Errorf("%d operations wait and %d were forgotten of %d", waiting, d.Forgotten(), maxSubmitted)
			}
			for i := range uint64(maxSubmitted) {
				d.Decode(&kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindUringEnd), Call: linkat, Pid: 1, Cgroup: 1}, Uring: &kernel.Uring{Request: i + 1, UserData: i}})
			}
			if d.urings.bytes != 0 || len(d.urings.byRequest) > 0 {
				t.Errorf("%d bytes and %d operations are left", d.urings.bytes, len(d.urings.byRequest))
			}
		})
	}
}

// The resolver reads only some of the open files of a process that has very many.
func TestReadsABoundedPart(t *testing.T) {
	const many, pid = maxFiles + 2*descriptorsAtOnce, 7
	root := t.TempDir()
	dir := filepath.Join(root, strconv.Itoa(pid), "fd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for fd := range many {
		if err := os.Symlink("/srv/data", filepath.Join(dir, strconv.Itoa(fd))); err != nil {
			t.Fatal(err)
		}
	}
	r := newResolver(process.Finder{Root: root}, "")
	p := r.read(pid)
	// Here the order is any. The kernel gives the lowest first.
	if n := p.files.table.known(); n < maxFiles-lowFiles || n > maxFiles || !p.unread || r.names.refused == 0 {
		t.Errorf("%d descriptors are known, all read: %t, missing: %d", n, !p.unread, r.names.refused)
	}
}
