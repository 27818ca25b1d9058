// Package privilege says what a probe may do on its node: which settings there are, and which
// capabilities a probe needs, and what for. Those who build its container, those who admit it and the
// probe itself read the same list.
package privilege

import (
	"fmt"
	"slices"
	"strings"
)

// Setting says with which rights probes run; its zero value is Privileged.
type Setting string

// The settings.
const (
	// Privileged containers, as the programs that Sonde follows have them.
	Privileged Setting = "Privileged"
	// Capabilities has all capabilities dropped but Needed, a seccomp filter, and no new privileges.
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

// Capability is one that a probe needs. Name is the kernel's without CAP_, as Kubernetes has it; Bit is
// its number in linux/capability.h.
type Capability struct {
	Name string
	Bit  int
	// For completes the sentence "the probe needs it to".
	For string
	// Gate says that only a probe needs it that opens its target's gate.
	Gate bool
}

// Needed are all capabilities that a probe needs, by name; with gate, those of one that opens its target's gate. Each is
// shown to be needed by TestEachCapabilityIsNeeded in agents/probe.
func Needed(gate bool) []Capability {
	all := []Capability{
		{Name: "KILL", Bit: 5, For: "signal the gate of its target, which runs as another user", Gate: true},
		{Name: "NET_RAW", Bit: 13, For: "open packet sockets in the target's network namespace"},
		{Name: "SYS_ADMIN", Bit: 21, For: "enter the target's network namespace, and load BPF programs and attach them"},
		{Name: "SYS_PTRACE", Bit: 19, For: "open namespaces of other users' processes, and see their files"},
	}
	return slices.DeleteFunc(all, func(c Capability) bool { return c.Gate && !gate })
}

// Check returns an error that names each capability which is needed and not in the effective set, given
// as a bit mask.
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
	return fmt.Errorf("the probe lacks %s: a cluster admin must let ServiceAccount sonde-probe have it, "+
		"on OpenShift by SecurityContextConstraints sonde-probe, elsewhere by whatever policy takes it away", strings.Join(missing, ", "))
}
