package decode

import (
	"maps"
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestOpenFiles(t *testing.T) {
	p := newProcess(&budget{left: maxNames})
	want := map[int32]openFile{}
	for _, fd := range []int32{0, lowFiles - 1, lowFiles, 1 << 20, math.MaxInt32, -1} {
		if f := p.files.get(fd); f != (openFile{}) {
			t.Errorf("%d is %+v before it was opened", fd, f)
		}
		want[fd] = openFile{name: string(rune('a' + len(want))), cloexec: len(want)%2 == 0}
		p.opened(fd, want[fd].name, want[fd].cloexec)
	}
	check := func(what string, got *openFiles) {
		t.Helper()
		if diff := cmp.Diff(want, maps.Collect(got.all()), cmp.AllowUnexported(openFile{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
		for fd, f := range want {
			if got.get(fd) != f {
				t.Errorf("%s: %d is %+v, want %+v", what, fd, got.get(fd), f)
			}
		}
	}
	check("opened", &p.files)

	child := p.files.share()
	p.exec()
	check("of a child that was made before", &child)
	for fd := range want {
		child.forget(fd)
	}
	maps.DeleteFunc(want, func(_ int32, f openFile) bool { return f.cloexec })
	check("after another program was started", &p.files)
	want = map[int32]openFile{}
	check("closed", &child)
}

// Only some files of a process with very many are remembered. These can change.
func TestMostOpenFiles(t *testing.T) {
	p := newProcess(&budget{left: maxNames})
	for fd := range int32(2 * maxFiles) {
		p.opened(fd, "a", false)
	}
	if n := len(maps.Collect(p.files.all())); n != maxFiles {
		t.Errorf("%d files are remembered, want %d", n, maxFiles)
	}
	p.opened(maxFiles-1, "b", false)
	p.opened(maxFiles, "b", false)
	if p.name(maxFiles-1) != "b" || p.name(maxFiles) != "" {
		t.Errorf("%q and %q, want b and nothing", p.name(maxFiles-1), p.name(maxFiles))
	}
	p.files.forget(maxFiles - 1)
	p.opened(maxFiles, "b", false)
	if p.name(maxFiles) != "b" {
		t.Error("there was room for another")
	}
}

func TestInternedStrings(t *testing.T) {
	var k internedStrings
	for range 2 {
		for n := range 3 * len(k) {
			want := string(rune('a' + n))
			b := []byte(want)
			got := k.get(b)
			b[0] = '?'
			if got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	if got := k.get(nil); got != "" {
		t.Errorf("%q of nothing", got)
	}
	path := []byte("/etc/passwd")
	if n := testing.AllocsPerRun(100, func() { k.get(path) }); n > 0 {
		t.Errorf("a known string is allocated again: %v allocations", n)
	}
}

// The time of a name costs no memory: a process can have a million files.
func TestSizeOfAnOpenFile(t *testing.T) {
	if got := unsafe.Sizeof(openFile{}); got != 24 {
		t.Errorf("%d bytes", got)
	}
	const day = 24 * uint64(time.Hour)
	for _, ns := range []uint64{0, 1000, day, 365 * day} {
		if !stampOf(ns+256).after(stampOf(ns)) || stampOf(ns).after(stampOf(ns)) || stampOf(ns).after(stampOf(ns+256)) {
			t.Errorf("the stamp of %d ns", ns)
		}
	}
}
