package trace

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

	"github.com/sonde-operator/sonde/test/bench/figures"
)

// worker runs the turns of a loop.
type worker struct {
	path []byte // path of the file to open, with its terminating zero
	zero int    // descriptor of /dev/zero
	buf  [1]byte
}

// opens opens a file, reads a byte and closes it. Raw system calls do not involve the Go runtime.
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

// order is sent to a worker as one line, so that it needs one call to read it.
type order struct {
	turns int
	rate  float64 // turns per second; 0 is as fast as possible
}

func (o order) String() string {
	return strconv.Itoa(o.turns) + " " + strconv.FormatFloat(o.rate, 'f', -1, 64) + "\n"
}

// worked is the answer of a worker.
type worked struct {
	Wall time.Duration `json:"wall"`
}

// runLoop is a worker. Its arguments are the name of a loop and the file to open. It ends at the end of its input.
func runLoop(args []string) error {
	if len(args) != 2 || figures.LoopByName(args[0]) == nil {
		return errors.New("the arguments must be a loop and a file")
	}
	// The Go runtime's own work must not be measured. It collects garbage, and it moves a goroutine that is locked to a
	// thread away and back after a while.
	debug.SetGCPercent(-1)
	runtime.UnlockOSThread()
	l, w := figures.LoopByName(args[0]), &worker{path: append([]byte(args[1]), 0)}
	var err error
	if w.zero, err = unix.Open("/dev/zero", unix.O_RDONLY, 0); err != nil {
		return fmt.Errorf("open /dev/zero: %w", err)
	}
	if _, err := unix.Write(1, []byte("{}\n")); err != nil {
		return fmt.Errorf("report readiness: %w", err)
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
		wall, ok := w.run(l, o)
		if !ok {
			return fmt.Errorf("a call of the loop %q has failed", l.Label)
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

// run runs the turns of an order. With a rate, it runs a burst every millisecond.
func (w *worker) run(l *figures.Loop, o order) (time.Duration, bool) {
	const burst = time.Millisecond
	do, began := turns[l.Name], time.Now()
	if o.rate <= 0 {
		ok := do(w, o.turns)
		return time.Since(began), ok
	}
	each := max(1, int(o.rate*burst.Seconds()))
	for done := 0; done < o.turns; {
		n := min(each, o.turns-done)
		if !do(w, n) {
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

// turns run n turns of a loop, and report whether all calls succeeded.
var turns = map[string]func(w *worker, n int) bool{figures.LoopOpen: (*worker).opens, figures.LoopRead: (*worker).reads}
