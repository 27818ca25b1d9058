package memory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestExcess(t *testing.T) {
	if n := Excess(); n != 0 {
		t.Errorf("%d bytes too much without a limit", n)
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	runtime.GC()
	if n := Excess(); n != 0 {
		t.Errorf("%d bytes too much with nothing in use", n)
	}
	kept := bytes.Repeat([]byte("x"), 60<<20)
	runtime.GC()
	if n := Excess(); n < 10<<20 || n > 30<<20 { // 60 MiB - 0.7 * 64 MiB = 15.2 MiB, and the rest of the process
		t.Errorf("%d bytes too much with %d in use", n, len(kept))
	}
	runtime.KeepAlive(kept)
	runtime.GC()
	if n := Excess(); n != 0 {
		t.Errorf("%d bytes too much after they were given up", n)
	}
}

// TestFlow: a flow waits while its reader keeps what it read, and while the source always has more.
func TestFlow(t *testing.T) {
	const pause = 10 * time.Millisecond
	from := strings.NewReader(strings.Repeat("x", 10))
	var f Flow
	read := func(size int) {
		t.Helper()
		if _, err := f.Read(from, make([]byte, size)); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	check := func(what string, least time.Duration) {
		t.Helper()
		if d := f.Waits(time.Now()); d < least || d > least+time.Minute || least == 0 && d > pause {
			t.Errorf("%s: waits for %s, want %s or little more", what, d, least)
		}
	}
	if f.Waits(time.Now()) != 0 {
		t.Error("waits before it begins")
	}
	f.Begin(time.Now())
	time.Sleep(pause)
	check("nothing was read yet", pause)
	read(4)
	time.Sleep(pause)
	check("a full read", pause)
	read(4)
	time.Sleep(pause)
	check("two full reads", 2*pause)
	read(4)
	check("a short read", 0)
	time.Sleep(pause)
	check("a short read that is kept", pause)
	read(4)
	if f.Waits(time.Now().Add(time.Hour)) != 0 {
		t.Error("waits after the end")
	}
	if n := f.Moved(); n != 10 || f.Moved() != 0 {
		t.Errorf("%d bytes moved, want 10, then none", n)
	}
}

func TestWorst(t *testing.T) {
	all := []Waiter[string]{
		{Of: "fast", Holds: 10, Moved: 9, Waits: time.Hour}, {Of: "still", Holds: 10, Waits: time.Second}, {Of: "longer still", Holds: 10, Waits: time.Minute},
	}
	for free, want := range map[int]string{0: "[]", 1: "[longer still]", 11: "[longer still still]", 99: "[longer still still fast]"} {
		if got := fmt.Sprint(Worst(all, free)); got != want {
			t.Errorf("to free %d: %s, want %s", free, got, want)
		}
	}
}
