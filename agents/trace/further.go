package trace

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/btf"
)

// further is what groups need beside their calls, as far as the running kernel has it.
type further struct {
	programs []string
	// faultsEnd says that the end of a page fault may be seen, too.
	faultsEnd bool
	// oomByPid says that the kernel tells of a victim by its number alone.
	oomByPid bool
	// missing are events of which this kernel cannot tell.
	missing []string
}

// Missing are the events of the groups of which this node's kernel cannot tell. An error of its types is Open's to report.
func Missing(groups []Group) []string {
	f, err := furtherOf(groups)
	if err != nil {
		return nil
	}
	return f.missing
}

func furtherOf(groups []Group) (further, error) {
	var f further
	memory, signal := slices.Contains(groups, GroupMemory), slices.Contains(groups, GroupSignal)
	if !memory && !signal {
		return f, nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return f, explain(fmt.Errorf("read the kernel's types: %w", err))
	}
	add := func(tracepoint, program, event string) {
		if hook(kernel, tracepoint) == nil {
			f.missing = append(f.missing, event)
		} else {
			f.programs = append(f.programs, program)
		}
	}
	if memory {
		add("page_fault_user", traceProgSondeFault, eventFault)
		var handle *btf.Func
		f.faultsEnd = len(f.missing) == 0 && kernel.TypeByName("handle_mm_fault", &handle) == nil
	}
	if signal {
		add("signal_generate", traceProgSondeSignal, eventSignal)
		f.oomByPid = oomByPid(hook(kernel, "mark_victim"))
		program := traceProgSondeOom
		if f.oomByPid {
			program = traceProgSondeOomPid
		}
		add("mark_victim", program, eventOOM)
	}
	return f, nil
}

// hook returns what a raw tracepoint gives a program; nil if the kernel has no such tracepoint.
func hook(kernel *btf.Spec, tracepoint string) *btf.FuncProto {
	var t *btf.Typedef
	if kernel.TypeByName("btf_trace_"+tracepoint, &t) != nil {
		return nil
	}
	pointer, ok := t.Type.(*btf.Pointer)
	if !ok {
		return nil
	}
	proto, _ := pointer.Target.(*btf.FuncProto)
	return proto
}

// oomByPid: the first argument is the tracepoint's own, the second the victim, by its task in newer kernels.
func oomByPid(proto *btf.FuncProto) bool {
	if proto == nil || len(proto.Params) < 2 {
		return false
	}
	_, number := btf.UnderlyingType(proto.Params[1].Type).(*btf.Int)
	return number
}
