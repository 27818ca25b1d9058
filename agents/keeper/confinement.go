package keeper

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// tokenPath is where the kubelet mounts a ServiceAccount's token.
const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// seccompFilter is the value of Seccomp in /proc/<pid>/status for a process under a filter (proc_pid_status(5)).
const seccompFilter = 2

// confinement describes the restrictions of this process. The keeper shares a Pod with a privileged container: an
// attacker who takes it over through its port must gain nothing.
type confinement struct {
	status
	rootWritable bool
	token        bool
}

// status is the part of /proc/<pid>/status that is checked (proc_pid_status(5)).
type status struct {
	uids       []int // real, effective, saved, file system
	gids       []int // in the same order
	permitted  uint64
	effective  uint64
	noNewPrivs int
	seccomp    int
	missing    []string // fields that the kernel does not have
}

// CheckConfinement returns an error that names every missing restriction of this process. It must have a user and a group of
// the keepers' range, no capability, no new privileges, a seccomp filter, a read-only root file system, and no API token.
func CheckConfinement() error {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read own status: %w", err)
	}
	s, err := parseStatus(b)
	if err != nil {
		return fmt.Errorf("read own status: %w", err)
	}
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		return fmt.Errorf("inspect the root file system: %w", err)
	}
	_, err = os.Lstat(tokenPath)
	c := confinement{status: s, rootWritable: root.Flags&unix.ST_RDONLY == 0, token: !errors.Is(err, os.ErrNotExist)}
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
	for _, name := range c.missing {
		reject(true, "the kernel does not report "+name)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(c.uids))) {
		reject(!ofKeepers(id), fmt.Sprintf("it runs as user %d, which other Pods may have (leave runAsUser as the manager sets it)", id))
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(c.gids))) {
		reject(!ofKeepers(id), fmt.Sprintf("it runs as group %d, which other Pods may have (leave runAsGroup as the manager sets it)", id))
	}
	reject(c.permitted|c.effective != 0, fmt.Sprintf("it has capabilities %#x (drop ALL)", c.permitted|c.effective))
	reject(c.noNewPrivs != 1, "it may gain privileges (set allowPrivilegeEscalation to false)")
	reject(c.seccomp != seccompFilter, "no seccomp filter is active (set seccompProfile RuntimeDefault)")
	reject(c.rootWritable, "its root file system is writable (set readOnlyRootFilesystem)")
	reject(c.token, "a ServiceAccount token is mounted (set automountServiceAccountToken to false)")
	if len(violations) == 0 {
		return nil
	}
	return fmt.Errorf("the keeper refuses to run unconfined: %s", strings.Join(violations, "; "))
}

// ofKeepers reports whether a user or group is one that the manager gives to keepers, each to one Job.
func ofKeepers(id int) bool {
	return id >= captureconfig.FirstKeeperUser && id < captureconfig.FirstKeeperUser+captureconfig.KeeperUsers
}

// parseStatus reads the lines "Name:\tvalues" of /proc/<pid>/status.
func parseStatus(b []byte) (status, error) {
	var s status
	fields := map[string]func(values []string) error{
		"Uid":        func(v []string) error { return parseIDs(v, &s.uids) },
		"Gid":        func(v []string) error { return parseIDs(v, &s.gids) },
		"CapPrm":     func(v []string) error { return parseNumber(v, 16, 64, &s.permitted) },
		"CapEff":     func(v []string) error { return parseNumber(v, 16, 64, &s.effective) },
		"NoNewPrivs": func(v []string) error { return parseNumber(v, 10, 8, &s.noNewPrivs) },
		"Seccomp":    func(v []string) error { return parseNumber(v, 10, 8, &s.seccomp) },
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		name, values, _ := strings.Cut(lines.Text(), ":")
		parse, ok := fields[name]
		if !ok {
			continue
		}
		delete(fields, name)
		if err := parse(strings.Fields(values)); err != nil {
			return status{}, fmt.Errorf("line %s: %w", name, err)
		}
	}
	if err := lines.Err(); err != nil {
		return status{}, fmt.Errorf("split lines: %w", err)
	}
	for _, name := range []string{"Uid", "Gid", "CapPrm", "CapEff", "NoNewPrivs", "Seccomp"} {
		if _, missing := fields[name]; missing {
			s.missing = append(s.missing, name)
		}
	}
	return s, nil
}

// parseIDs reads the four IDs of a line into to.
func parseIDs(values []string, to *[]int) error {
	if len(values) != 4 {
		return fmt.Errorf("%d values, want 4", len(values))
	}
	for _, v := range values {
		id, err := strconv.ParseUint(v, 10, 32)
		if err != nil {
			return fmt.Errorf("ID %.20q: want a number", v)
		}
		*to = append(*to, int(id))
	}
	return nil
}

// parseNumber reads the one value of a line in the given base into to.
func parseNumber[T int | uint64](values []string, base, bits int, to *T) error {
	if len(values) != 1 {
		return fmt.Errorf("%d values, want 1", len(values))
	}
	n, err := strconv.ParseUint(values[0], base, bits)
	if err != nil {
		return fmt.Errorf("value %.20q: want a number of base %d", values[0], base)
	}
	*to = T(n)
	return nil
}
