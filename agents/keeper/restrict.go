package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Restrictions that the kernel enforces on this process, by Landlock (landlock(7)). A kernel may have none or some of them.
type Restrictions struct {
	// Landlock is the version of the kernel's interface, or 0.
	Landlock int `json:"landlock"`
	// Files outside the volumes are closed, among them /proc. So is the memory of other processes.
	Files bool `json:"files"`
	// Signals go to no other process.
	Signals bool `json:"signals"`
	// Why restrictions are missing.
	Why string `json:"why,omitempty"`
}

// landlockSignals is Landlock's version that scopes signals and abstract sockets (Linux 6.12).
const landlockSignals = 6

// erratumSignals is the bit of the fix that lets the threads of a process signal each other (Linux 6.15, and 6.12.y). Without
// it the scope of signals would break Go's scheduler, which signals its threads.
const erratumSignals = 1 << 1

// Restrict takes from this process what a keeper does not need once its volumes and its port are open: its memory becomes
// unreadable for processes of its user, and Landlock closes everything except for the two volumes. The error is nil where the
// kernel, or a seccomp filter, has no Landlock; the process must then rely on its user, which no other process has.
func Restrict(results, control string) (Restrictions, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return Restrictions{}, fmt.Errorf("make the memory unreadable (PR_SET_DUMPABLE): %w", err)
	}
	version, err := landlocksys.LandlockGetABIVersion()
	if err != nil {
		return Restrictions{Why: "the kernel has no Landlock, or seccomp refuses it: " + err.Error()}, nil //nolint:nilerr // many kernels lack it
	}
	r := Restrictions{Landlock: version, Signals: version >= landlockSignals}
	config := landlock.V11
	if fixes, err := landlocksys.LandlockGetErrata(); r.Signals && (err != nil || fixes&erratumSignals == 0) {
		config.Scoped &^= landlocksys.ScopeSignal
		r.Signals, r.Why = false, "the kernel lacks a fix for signals between threads"
	}
	const read = landlock.AccessFSSet(landlocksys.AccessFSReadFile | landlocksys.AccessFSReadDir)
	err = config.BestEffort().Restrict(
		landlock.PathAccess(read, results),
		landlock.PathAccess(read|landlocksys.AccessFSWriteFile|landlocksys.AccessFSMakeReg, control),
	)
	if err != nil {
		return Restrictions{Landlock: version, Why: "Landlock refuses the rules: " + err.Error()}, nil //nolint:nilerr // reported, as above
	}
	f, err := os.Open("/proc/self/status")
	if err == nil {
		return Restrictions{}, errors.Join(errors.New("the keeper refuses to run: /proc is open in spite of Landlock"), f.Close())
	}
	r.Files = errors.Is(err, fs.ErrPermission)
	return r, nil
}
