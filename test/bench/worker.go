package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// worker is the process that does turns.
type worker struct {
	path []byte // of the file that is opened, with its zero
	zero int    // a file that holds any number of bytes
	buf  [1]byte
}

// opens opens a file, reads a byte and closes it. Raw calls are made without the Go runtime's having a part in it.
func (w *worker) opens(n int) bool {
	cwd := unix.AT_FDCWD
	for range n {
		fd, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(cwd), uintptr(unsafe.Pointer(&w.path[0])), unix.O_RDONLY, 0, 0, 0)
		if errno != 0 {
			return false
		}
		got, _, _ := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&w.buf)), 1)
		if _, _, errno := unix.RawSyscall(unix.SYS_CLOSE, fd, 0, 0); errno != 0 || got != 1 {
			return false
		}
	}
	return true
}

func (w *worker) reads(n int) bool {
	for range n {
		if got, _, _ := unix.RawSyscall(unix.SYS_READ, uintptr(w.zero), uintptr(unsafe.Pointer(&w.buf)), 1); got != 1 {
			return false
		}
	}
	return true
}

// order is what a worker is told, in one line, which it reads with one call.
type order struct {
	turns int
	rate  float64 // turns per second; 0 is as fast as it goes
}

func (o order) String() string {
	return strconv.Itoa(o.turns) + " " + strconv.FormatFloat(o.rate, 'f', -1, 64) + "\n"
}

// worked is its answer.
type worked struct {
	Wall time.Duration `json:"wall"`
}

// runLoop is a worker: its arguments are a loop's name and the file to open. It ends with its input.
func runLoop(args []string) error {
	if len(args) != 2 || loopByName(args[0]) == nil {
		return errors.New("which loop, and which file?")
	}
	// What the runtime does beside the loop would be in the figures: collecting garbage, and passing a goroutine that
	// belongs to a thread from one thread to another and back, each time that it has run for a while.
	debug.SetGCPercent(-1)
	runtime.UnlockOSThread()
	l, w := loopByName(args[0]), &worker{path: append([]byte(args[1]), 0)}
	var err error
	if w.zero, err = unix.Open("/dev/zero", unix.O_RDONLY, 0); err != nil {
		return fmt.Errorf("open /dev/zero: %w", err)
	}
	if _, err := unix.Write(1, []byte("{}\n")); err != nil {
		return fmt.Errorf("say that it is there: %w", err)
	}
	line := make([]byte, 128)
	for {
		n, err := unix.Read(0, line)
		if err != nil || n == 0 {
			return err
		}
		var o order
		if _, err := fmt.Sscan(string(line[:n]), &o.turns, &o.rate); err != nil {
			return fmt.Errorf("read order %q: %w", line[:n], err)
		}
		wall, ok := w.obey(l, o)
		if !ok {
			return fmt.Errorf("a call of the loop %q has failed", l.label)
		}
		answer, err := json.Marshal(worked{Wall: wall})
		if err != nil {
			return err
		}
		if _, err := unix.Write(1, append(answer, '\n')); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// obey does the turns; where there is a rate, in a burst each millisecond.
func (w *worker) obey(l *loop, o order) (time.Duration, bool) {
	const burst = time.Millisecond
	began := time.Now()
	if o.rate <= 0 {
		ok := l.turns(w, o.turns)
		return time.Since(began), ok
	}
	each := max(1, int(o.rate*burst.Seconds()))
	for done := 0; done < o.turns; {
		n := min(each, o.turns-done)
		if !l.turns(w, n) {
			return 0, false
		}
		done += n
		ahead := time.Duration(float64(done)/o.rate*float64(time.Second)) - time.Since(began)
		if ahead > 0 {
			ts := unix.NsecToTimespec(int64(ahead))
			_ = unix.Nanosleep(&ts, nil)
		}
	}
	return time.Since(began), true
}
