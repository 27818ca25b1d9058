package memory

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	if Short() {
		t.Error("short without a limit")
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	runtime.GC()
	if Short() {
		t.Error("short with nothing in use")
	}
	kept := bytes.Repeat([]byte("x"), 48<<20)
	runtime.GC()
	if !Short() {
		t.Errorf("not short with %d bytes in use", len(kept))
	}
	runtime.KeepAlive(kept)
	runtime.GC()
	if Short() {
		t.Error("short after the memory was given up")
	}
}

// TestFlow: a flow waits while its reader keeps what it read, and while the source always has more.
func TestFlow(t *testing.T) {
	const age = 10 * time.Millisecond
	late := func() time.Time { return time.Now().Add(2 * age) }
	from := strings.NewReader(strings.Repeat("x", 10))
	var f Flow
	read := func(size int) {
		if _, err := f.Read(from, make([]byte, size)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if f.Waits(late(), age) {
		t.Error("waits before the first read")
	}
	read(4)
	if f.Waits(time.Now(), age) || !f.Waits(late(), age) {
		t.Error("a full read: waits at once, or does not wait later")
	}
	time.Sleep(2 * age)
	read(4)
	if !f.Waits(time.Now(), age) {
		t.Error("two full reads: does not wait since the first")
	}
	read(4)
	if f.Waits(time.Now(), age) || !f.Waits(late(), age) {
		t.Error("a short read: waits since an earlier one, or does not wait later")
	}
	read(4)
	if f.Waits(late(), age) {
		t.Error("waits after the end")
	}
	if n := f.Moved(); n != 10 || f.Moved() != 0 {
		t.Errorf("%d bytes moved, want 10, then none", n)
	}
}
