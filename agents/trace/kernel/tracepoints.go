package kernel

import (
	"fmt"

	"github.com/cilium/ebpf/btf"
)

// Tracepoints are the tracepoints of the running kernel for events of memory and signals that are not system calls.
type Tracepoints struct {
	// Missing are the kinds of events that this kernel cannot record.
	Missing []Kind

	programs []string
	// faultsEnd says that the end of a page fault can be recorded.
	faultsEnd bool
	// oomByPid says that the kernel reports the victim of an OOM kill only by its PID.
	oomByPid bool
}

// FindTracepoints finds the tracepoints in the running kernel's BTF.
func FindTracepoints(memory, signal bool) (Tracepoints, error) {
	var t Tracepoints
	if !memory && !signal {
		return t, nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return t, explain(fmt.Errorf("read the kernel's types: %w", err))
	}
	add := func(tracepoint, program string, kind Kind) {
		if prototype(kernel, tracepoint) == nil {
			t.Missing = append(t.Missing, kind)
		} else {
			t.programs = append(t.programs, program)
		}
	}
	if memory {
		add("page_fault_user", traceProgSondeFault, KindFault)
		var handle *btf.Func
		t.faultsEnd = len(t.Missing) == 0 && kernel.TypeByName("handle_mm_fault", &handle) == nil
	}
	if signal {
		add("signal_generate", traceProgSondeSignal, KindSignal)
		t.oomByPid = oomByPid(prototype(kernel, "mark_victim"))
		program := traceProgSondeOom
		if t.oomByPid {
			program = traceProgSondeOomPid
		}
		add("mark_victim", program, KindOOM)
	}
	return t, nil
}

// prototype returns the arguments that a raw tracepoint gives a program; nil if the kernel has no such tracepoint.
func prototype(kernel *btf.Spec, tracepoint string) *btf.FuncProto {
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

// oomByPid reports whether mark_victim passes the victim's PID: newer kernels pass its task. The first argument is the
// tracepoint's own.
func oomByPid(proto *btf.FuncProto) bool {
	if proto == nil || len(proto.Params) < 2 {
		return false
	}
	_, number := btf.UnderlyingType(proto.Params[1].Type).(*btf.Int)
	return number
}
