// Package memory returns memory that the manager does not use to the kernel: pages of its program that only the start
// needed, and heap that the garbage collector has freed. docs/adr/0013-own-code-or-library.md says what it gains.
package memory

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Memory is released at the start, after startTime, when the caches are filled, and then each interval. It costs some
// milliseconds. Pages that are used later come back from the page cache.
const (
	startTime = 15 * time.Second
	interval  = time.Minute
)

// Releaser releases unused memory from time to time, on every replica. It implements manager.Runnable.
type Releaser struct{ Clock clock.Clock }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Releaser) NeedLeaderElection() bool { return false }

// Start releases memory until ctx ends. A failure is logged once and does no harm.
func (r Releaser) Start(ctx context.Context) error {
	for wait := startTime; ; wait = interval {
		if err := Release(); err != nil {
			ctrl.LoggerFrom(ctx).WithName("memory").Info("Keeping unused pages of the program", "error", err.Error())
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(wait):
		}
	}
}

// Release returns unused memory once.
func Release() error {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the process's mappings: %w", err)
	}
	for _, m := range unchanged(string(smaps), program) {
		// These pages are the file's, and the kernel reads them again when they are touched.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.until-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("release pages of the program: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, until uintptr }

// unchanged returns the mappings of a file whose pages equal the file. They are read-only, and Anonymous is 0: no loader
// wrote to them before it made them read-only.
func unchanged(smaps, file string) []mapping {
	var found []mapping
	var now mapping
	ours := false
	for line := range strings.Lines(smaps) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch key := fields[0]; {
		case !strings.HasSuffix(key, ":"):
			now = mapping{}
			ours = len(fields) == 6 && fields[5] == file && !strings.Contains(fields[1], "w") && now.parse(key)
		case key == "Anonymous:" && ours && fields[1] == "0":
			found = append(found, now)
		}
	}
	return found
}

func (m *mapping) parse(text string) bool {
	from, until, _ := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(from, 16, 64)
	b, err2 := strconv.ParseUint(until, 16, 64)
	m.from, m.until = uintptr(a), uintptr(b)
	return err1 == nil && err2 == nil && b > a
}
