// Package trim gives memory back to the kernel that the process does not use: pages of its program that only its start
// needed, and what the collector has freed. A manager of Kubernetes is a large program of which little runs once it is
// up; without this two thirds of the resident set of an idle one are pages that are never looked at again.
package trim

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

// first is when the start is over, caches filled included; interval is between two trims after that. One costs some
// milliseconds, and what is used after all comes back from the page cache.
const (
	first    = 15 * time.Second
	interval = time.Minute
)

// Trimmer trims now and then, on every replica. It implements manager.Runnable.
type Trimmer struct{ Clock clock.Clock }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Trimmer) NeedLeaderElection() bool { return false }

// Start trims until ctx ends. That it cannot is logged once, and harms nothing.
func (t Trimmer) Start(ctx context.Context) error {
	for wait := first; ; wait = interval {
		if err := Trim(); err != nil {
			ctrl.LoggerFrom(ctx).WithName("trim").Info("Keeping pages of the program that are not used", "error", err.Error())
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.Clock.After(wait):
		}
	}
}

// Trim gives back once.
func Trim() error {
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
		// Not the process's own memory but the file's, which is read again where it is touched.
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.until-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back pages of the program: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, until uintptr }

// unchanged returns the mappings of a file whose pages are all the file's: they cannot be written, and nothing was
// written to them before that was forbidden, as a loader does.
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
