package kernel

import (
	"fmt"
	"slices"
	"strings"

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
	// submission is the tracepoint of an io_uring's submissions; empty if they are not recorded.
	submission string
}

// UringMissing reports whether operations of io_urings are not recorded although they are wanted.
func (t *Tracepoints) UringMissing() bool { return slices.Contains(t.Missing, KindUringEnd) }

// withoutUring leaves out operations of io_urings.
func (t *Tracepoints) withoutUring() {
	t.submission = ""
	t.Missing = append(t.Missing, KindUringEnd)
	t.programs = slices.DeleteFunc(t.programs, func(name string) bool { return strings.HasPrefix(name, uringPrefix) })
}

// uringPrefix begins the names of the programs for io_urings.
const uringPrefix = "sonde_uring_"

// Events are the kinds of events for which tracepoints are wanted.
type Events struct{ Memory, Signal, Uring bool }

// FindTracepoints finds the tracepoints in the running kernel's BTF.
func FindTracepoints(wanted Events) (Tracepoints, error) {
	if wanted == (Events{}) {
		return Tracepoints{}, nil
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return Tracepoints{}, explain(fmt.Errorf("read the kernel's types: %w", err))
	}
	return findTracepoints(kernel, wanted), nil
}

func findTracepoints(kernel *btf.Spec, wanted Events) Tracepoints {
	var t Tracepoints
	add := func(tracepoint, program string, kind Kind) {
		if prototype(kernel, tracepoint) == nil {
			t.Missing = append(t.Missing, kind)
		} else {
			t.programs = append(t.programs, program)
		}
	}
	if wanted.Memory {
		add("page_fault_user", traceProgSondeFault, KindFault)
		var handle *btf.Func
		t.faultsEnd = len(t.Missing) == 0 && kernel.TypeByName("handle_mm_fault", &handle) == nil
	}
	if wanted.Signal {
		add("signal_generate", traceProgSondeSignal, KindSignal)
		t.oomByPid = oomByPid(prototype(kernel, "mark_victim"))
		program := traceProgSondeOom
		if t.oomByPid {
			program = traceProgSondeOomPid
		}
		add("mark_victim", program, KindOOM)
	}
	if wanted.Uring {
		t.addUring(kernel)
	}
	return t
}

// addUring adds the programs for io_urings, if the kernel has io_urings, and its tracepoints are those of Linux 6.0 or later.
func (t *Tracepoints) addUring(kernel *btf.Spec) {
	var ring *btf.Struct
	if kernel.TypeByName("io_ring_ctx", &ring) != nil {
		return
	}
	end := ""
	switch result := parameter(prototype(kernel, "io_uring_complete"), 2); {
	case isPointer(result, "io_uring_cqe"):
		end = traceProgSondeUringEndCqe
	case isNumber(result):
		end = traceProgSondeUringEnd
	}
	for _, name := range []string{"io_uring_submit_req", "io_uring_submit_sqe"} {
		if isPointer(parameter(prototype(kernel, name), 0), "io_kiocb") {
			t.submission = name
		}
	}
	overflow := prototype(kernel, "io_uring_cqe_overflow")
	if end == "" || t.submission == "" || !isNumber(parameter(overflow, 1)) {
		t.submission = ""
		t.Missing = append(t.Missing, KindUringEnd)
		return
	}
	t.programs = append(t.programs, end, traceProgSondeUringOverflow, traceProgSondeUringSubmit)
	if isPointer(parameter(prototype(kernel, "io_uring_req_failed"), 1), "io_kiocb") {
		t.programs = append(t.programs, traceProgSondeUringFailed)
	}
}

// parameter returns the type of a tracepoint's parameter; nil if there is none. The first parameter of proto is the
// tracepoint's own.
func parameter(proto *btf.FuncProto, n int) btf.Type {
	if proto == nil || n+1 >= len(proto.Params) {
		return nil
	}
	return btf.UnderlyingType(proto.Params[n+1].Type)
}

func isNumber(t btf.Type) bool {
	_, ok := t.(*btf.Int)
	return ok
}

func isPointer(t btf.Type, to string) bool {
	p, ok := t.(*btf.Pointer)
	return ok && btf.UnderlyingType(p.Target).TypeName() == to
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

// oomByPid reports whether mark_victim passes the victim's PID: newer kernels pass its task.
func oomByPid(proto *btf.FuncProto) bool { return isNumber(parameter(proto, 0)) }
