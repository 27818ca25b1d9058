package keeper

import (
	"fmt"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/restriction"
)

// Restrict takes from this process what a keeper does not need once its volumes and its port are open: its memory becomes
// unreadable for processes of its user, and Landlock closes everything except for the two volumes. The error is nil where the
// kernel, or a seccomp filter, has no Landlock; the process must then rely on its user, which no other process has.
func Restrict(results, control string) (restriction.InForce, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return restriction.InForce{}, fmt.Errorf("make the memory unreadable (PR_SET_DUMPABLE): %w", err)
	}
	const read = landlock.AccessFSSet(landlocksys.AccessFSReadFile | landlocksys.AccessFSReadDir)
	inForce, err := restriction.Apply(
		landlock.PathAccess(read, results),
		landlock.PathAccess(read|landlocksys.AccessFSWriteFile|landlocksys.AccessFSMakeReg, control),
	)
	if err != nil {
		return restriction.InForce{}, fmt.Errorf("the keeper refuses to run: %w", err)
	}
	return inForce, nil
}
