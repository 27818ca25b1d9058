package stowaway

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/restriction"
)

// tokenPath is where the kubelet mounts a ServiceAccount's token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// confinement describes the restrictions of this process. It reads what developers' machines send.
type confinement struct {
	root         bool // its user is root
	capabilities uint64
	noNewPrivs   bool
	seccomp      bool
	token        bool
}

// CheckConfinement returns an error that names every missing restriction of this process. It must have a user other than root, no
// capability, no new privileges, a seccomp filter, and no API token.
func CheckConfinement() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // the lower and the upper 32 capabilities
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read own capabilities: %w", err)
	}
	c := confinement{root: os.Getuid() == 0 || os.Geteuid() == 0}
	for i, d := range data {
		c.capabilities |= uint64(d.Permitted|d.Effective) << (32 * i)
	}
	noNewPrivs, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read own no_new_privs: %w", err)
	}
	seccomp, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read own seccomp mode: %w", err)
	}
	c.noNewPrivs, c.seccomp = noNewPrivs == 1, seccomp == unix.SECCOMP_MODE_FILTER
	_, err = os.Lstat(tokenPath)
	c.token = !errors.Is(err, os.ErrNotExist)
	return c.check()
}

// check makes CheckConfinement's decision.
func (c confinement) check() error {
	var violations []string
	reject := func(violated bool, text string) {
		if violated {
			violations = append(violations, text)
		}
	}
	reject(c.root, "it runs as root (set runAsNonRoot)")
	reject(c.capabilities != 0, fmt.Sprintf("it has capabilities %#x (drop ALL)", c.capabilities))
	reject(!c.noNewPrivs, "it may gain privileges (set allowPrivilegeEscalation to false)")
	reject(!c.seccomp, "no seccomp filter is active (set seccompProfile RuntimeDefault)")
	reject(c.token, "a ServiceAccount token is mounted (set automountServiceAccountToken to false)")
	if len(violations) == 0 {
		return nil
	}
	return fmt.Errorf("stowaway refuses to run unconfined: %s", strings.Join(violations, "; "))
}

// Restrict takes from this process what it does not need once its ports are open: its memory becomes unreadable for processes of
// its user, and Landlock closes all files and all outgoing TCP connections. The error is nil where the kernel has no Landlock.
func Restrict() (restriction.InForce, error) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return restriction.InForce{}, fmt.Errorf("make the memory unreadable (PR_SET_DUMPABLE): %w", err)
	}
	inForce, err := restriction.Apply()
	if err != nil {
		return restriction.InForce{}, fmt.Errorf("stowaway refuses to run: %w", err)
	}
	return inForce, nil
}
