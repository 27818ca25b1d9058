// Package restriction takes from a process what it does not need, by the kernel's Landlock (landlock(7)). Processes use it
// that read what users and networks send: the keeper, and the manager's filter compiler.
package restriction

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// InForce are the restrictions that the kernel enforces on this process. A kernel may have none or some of them.
type InForce struct {
	// Landlock is the version of the kernel's interface, or 0.
	Landlock int `json:"landlock"`
	// Files outside the given folders are closed, among them /proc. So is the memory of other processes.
	Files bool `json:"files"`
	// Signals go to no other process.
	Signals bool `json:"signals"`
	// Why restrictions are missing.
	Why string `json:"why,omitempty"`
}

const (
	// VersionTCP is Landlock's version that closes TCP (Linux 6.7).
	VersionTCP = 4
	// VersionSignals is Landlock's version that scopes signals and abstract sockets (Linux 6.12).
	VersionSignals = 6
)

// erratumSignals is the bit of the fix that lets the threads of a process signal each other (Linux 6.15, and 6.12.y). Without
// it the scope of signals would break Go's scheduler, which signals its threads.
const erratumSignals = 1 << 1

// Apply closes everything that the kernel's Landlock covers to all threads of this process, except for what the rules open
// and what is open already. The error is nil where the kernel, or a seccomp filter, has no Landlock.
func Apply(rules ...landlock.Rule) (InForce, error) {
	version, err := landlocksys.LandlockGetABIVersion()
	if err != nil {
		return InForce{Why: "the kernel has no Landlock, or seccomp refuses it: " + err.Error()}, nil //nolint:nilerr // many kernels lack it
	}
	r := InForce{Landlock: version, Signals: version >= VersionSignals}
	config := landlock.V11
	if fixes, err := landlocksys.LandlockGetErrata(); r.Signals && (err != nil || fixes&erratumSignals == 0) {
		config.Scoped &^= landlocksys.ScopeSignal
		r.Signals, r.Why = false, "the kernel lacks a fix for signals between threads"
	}
	if err := config.BestEffort().Restrict(rules...); err != nil {
		return InForce{Landlock: version, Why: "Landlock refuses the rules: " + err.Error()}, nil //nolint:nilerr // reported, as above
	}
	f, err := os.Open("/proc/self/status")
	if err == nil {
		return InForce{}, errors.Join(fmt.Errorf("%s is open in spite of Landlock", f.Name()), f.Close())
	}
	r.Files = errors.Is(err, fs.ErrPermission)
	return r, nil
}
