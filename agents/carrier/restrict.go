package carrier

import (
	"fmt"
	"net"
	"strconv"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/restriction"
)

// domain is the port of name servers.
const domain = 53

// Restrict takes from this process what a carrier does not need once it has its sockets: its memory becomes unreadable for
// processes of its user, and Landlock closes everything except for name resolution and Stowaway's port. The error is nil where the
// kernel, or a seccomp filter, has no Landlock.
func Restrict(stowaway string) (restriction.InForce, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return restriction.InForce{}, fmt.Errorf("make the memory unreadable (PR_SET_DUMPABLE): %w", err)
	}
	_, text, err := net.SplitHostPort(stowaway)
	if err != nil {
		return restriction.InForce{}, fmt.Errorf("address of Stowaway: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return restriction.InForce{}, fmt.Errorf("port of Stowaway: %w", err)
	}
	inForce, err := restriction.Apply(
		landlock.ROFiles("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf").IgnoreIfMissing(),
		landlock.ConnectTCP(uint16(port)), landlock.ConnectTCP(domain),
		// The resolver's UDP sockets bind to any port.
		landlock.BindUDP(0), landlock.ConnectSendUDP(domain),
	)
	if err != nil {
		return restriction.InForce{}, fmt.Errorf("the carrier refuses to run: %w", err)
	}
	return inForce, nil
}
