package probe

import (
	"fmt"
	"os"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/record"
	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/internal/wire/account"
)

// processesOf says whose packets name their process: the Pod's. If its cgroup is not found, it says why none does.
func processesOf(podUID string, ns *process.NetNS) *backend.Processes {
	cgroup, err := kernel.FindCgroup("/proc", ns.Process.PID, podUID)
	if err != nil {
		return &backend.Processes{Unavailable: err.Error()}
	}
	names := &containerNames{}
	return &backend.Processes{
		PID: ns.Process.PID, Cgroup: cgroup.ID(), Level: cgroup.Depth(), CgroupV1: cgroup.V1(), PIDLevel: cgroup.PIDLevel(),
		Container: names.of,
	}
}

// containerNames finds the names of containers by the kubelet's links, which no container can change.
type containerNames struct {
	finder process.Finder
	known  map[string]string
}

// of returns the name of a process's container; empty if it is in none, or the kubelet has not named it yet.
func (c *containerNames) of(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "" // it has ended
	}
	in, ok := process.ParseCgroup(b)
	if !ok {
		return ""
	}
	if name := c.known[in.ID]; name != "" {
		return name
	}
	if names, err := c.finder.ContainerNames(); err == nil {
		c.known = names
	}
	return c.known[in.ID]
}

// countProcesses sets the counts of packets by their process in an account.
func countProcesses(p *record.Processes) *account.Processes {
	if p == nil {
		return nil
	}
	to := &account.Processes{Named: int64(p.Named), Message: p.Message}
	for reason, n := range p.Reasons {
		if reason.NoProcess() {
			to.None += int64(n)
			continue
		}
		if to.Unknown == nil {
			to.Unknown = map[string]int64{}
		}
		to.Unknown[reason.Name()] += int64(n)
	}
	return to
}
