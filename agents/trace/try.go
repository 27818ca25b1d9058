package trace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Try loads the tracer's programs as a trace of everything has them, attaches them, and takes them away: what a kernel
// says to that is what it says to a trace. They match no process.
func Try() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	groups := groupsOfCalls()
	further, err := furtherOf(groups)
	if err != nil {
		return err
	}
	p, err := load(&settings{calls: callsOf(groups), timed: true, ringBytes: minRing * cpus, cpus: cpus, further: further, network: true})
	if err != nil {
		return err
	}
	return errors.Join(p.attach(), p.close())
}

// Lacking are the events of which this kernel does not tell, whatever is asked for.
func Lacking() []string { return Missing(groupsOfCalls()) }

// groupsOfCalls are all that the tables know.
func groupsOfCalls() []Group {
	var all []Group
	for _, c := range slices.Concat(tables...) {
		if !slices.Contains(all, c.group) {
			all = append(all, c.group)
		}
	}
	return all
}

// TryCgroups returns how many processes of the node are in a cgroup that BPF sees; proc is where they are.
func TryCgroups(proc string) (int, error) {
	b, err := os.ReadFile(proc + "/self/cgroup")
	if err != nil {
		return 0, fmt.Errorf("read own cgroups: %w", err)
	}
	all, err := cgroups(onV1(b), 0)
	if err != nil {
		return 0, err
	}
	found := 0
	for _, s := range all {
		if s.Cgroup != 0 {
			found++
		}
	}
	return found, nil
}

// onV1 tells whether the pids controller, by which Pods are told apart, has a hierarchy of version 1 (cgroups(7)).
func onV1(cgroups []byte) bool {
	for line := range bytes.Lines(cgroups) {
		parts := bytes.SplitN(line, []byte{':'}, 3)
		if len(parts) == 3 && slices.Contains(strings.Split(string(parts[1]), ","), "pids") {
			return true
		}
	}
	return false
}
