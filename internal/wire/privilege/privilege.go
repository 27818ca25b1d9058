// Package privilege lists the rights of a probe on its node: the settings, and the capabilities that it needs, with their
// purpose. The code that builds the probe's container, the SCC and the probe itself use the same list.
package privilege

import (
	"fmt"
	"slices"
	"strings"
)

// Setting of the rights of probes; the zero value is Privileged.
type Setting string

// The settings.
const (
	// Privileged containers.
	Privileged Setting = "Privileged"
	// Capabilities drops all capabilities except Needed, and sets a seccomp filter and no new privileges.
	Capabilities Setting = "Capabilities"
)

// String implements flag.Value.
func (s *Setting) String() string {
	if *s == "" {
		return string(Privileged)
	}
	return string(*s)
}

// Set implements flag.Value.
func (s *Setting) Set(text string) error {
	switch Setting(text) {
	case Privileged, Capabilities:
		*s = Setting(text)
		return nil
	default:
		return fmt.Errorf("%q is neither %s nor %s", text, Privileged, Capabilities)
	}
}

// Capability that a probe needs. Name is the kernel's without CAP_, as in Kubernetes; Bit is its number in
// linux/capability.h.
type Capability struct {
	Name string
	Bit  int
	// For completes the sentence "the probe needs it to".
	For string
	// Gate says that only a probe that opens its target's gate needs it.
	Gate bool
}

// Needed returns the capabilities that a probe needs, by name; gate includes those that open its target's gate.
// TestEachCapabilityIsNeeded in agents/probe shows that each is needed.
func Needed(gate bool) []Capability {
	all := []Capability{
		{Name: "KILL", Bit: 5, For: "signal the gate of its target, which runs as another user", Gate: true},
		{Name: "NET_RAW", Bit: 13, For: "open packet sockets in the target's network namespace"},
		{Name: "SYS_ADMIN", Bit: 21, For: "enter the target's network namespace, and load BPF programs and attach them"},
		{Name: "SYS_PTRACE", Bit: 19, For: "open namespaces of other users' processes, and see their files"},
	}
	return slices.DeleteFunc(all, func(c Capability) bool { return c.Gate && !gate })
}

// Check returns an error that names each needed capability that is not in the effective set, a bit mask.
func Check(effective uint64, gate bool) error {
	var missing []string
	for _, c := range Needed(gate) {
		if effective&(1<<c.Bit) == 0 {
			missing = append(missing, fmt.Sprintf("%s (to %s)", c.Name, c.For))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the probe lacks %s: ask a cluster admin to allow it for ServiceAccount sonde-probe, "+
		"on OpenShift in SecurityContextConstraints sonde-probe, elsewhere in the policy that removes it", strings.Join(missing, ", "))
}
