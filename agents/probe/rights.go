package probe

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// checkRights returns an error for missing capabilities, which the user reads in the capture's status. With gate it
// includes the capabilities that open a gate.
func checkRights(gate bool) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // version 3 has 64 bits in two parts
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	return privilege.Check(uint64(sets[1].Effective)<<32|uint64(sets[0].Effective), gate)
}
