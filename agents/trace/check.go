package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Check loads and attaches the programs of a trace with all groups, and removes them again: a kernel that accepts them
// accepts any trace. They match no process.
func Check() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	groups := decode.AllGroups()
	tracepoints, err := tracepointsOf(groups)
	if err != nil {
		return err
	}
	p, err := kernel.Load(&kernel.Config{
		Calls: decode.Calls(groups).Rows(), Timed: true, RingBytes: kernel.MinRing * cpus, CPUs: cpus, Tracepoints: tracepoints, Network: true,
		Operations: decode.Operations(groups), MoreResults: decode.RecordsMoreResults(groups),
	})
	if err != nil {
		return err
	}
	return errors.Join(p.Attach(), p.Close())
}

// MissingEvents returns the names of the groups' events that this node's kernel cannot record. It returns none if the
// kernel's types cannot be read: Open returns that error.
func MissingEvents(groups []decode.Group) []string {
	found, err := tracepointsOf(groups)
	if err != nil {
		return nil
	}
	var missing []string
	for _, kind := range found.Missing {
		missing = append(missing, decode.EventNames[kind])
	}
	return missing
}

func tracepointsOf(groups []decode.Group) (kernel.Tracepoints, error) {
	return kernel.FindTracepoints(kernel.Events{
		Memory: slices.Contains(groups, decode.GroupMemory), Signal: slices.Contains(groups, decode.GroupSignal), Uring: decode.HasOperations(groups),
	})
}
