package ebpffilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// ends are the jump targets of an inlined filter.
type ends struct {
	accepted, refused, undecided label
}

// Inline inserts a filter at the beginning of a compiled program at tc, which saves a call and a return for each
// packet. Replace must have put the same filter into function: if a byte is outside of the packet's linear part, the
// inlined filter calls it. For a refused packet the program returns the constant refused. The verifier checks the
// filter as a part of the program, and may reject it although it accepts the function. A filter that accepts nothing is
// an error. On an error the program is unchanged.
func Inline(spec *ebpf.ProgramSpec, function string, filter bpfprog.Program, refused int32, options ...Option) error {
	t, err := newTranslator(filter, options)
	if err != nil {
		return fmt.Errorf("inline filter: %w", err)
	}
	t.ends = &ends{t.newLabel(), t.newLabel(), t.newLabel()}
	if begin, end := bounds(spec.Instructions, function); begin == 0 || begin == end {
		return fmt.Errorf("inline filter: program %s has no function %s", spec.Name, function)
	}
	first := spec.Instructions[0]
	info := btf.FuncMetadata(&first)
	if info == nil || first.Reference() != "" || btf.CORERelocationMetadata(&first) != nil {
		return fmt.Errorf("inline filter: program %s begins with %v, which cannot be moved", spec.Name, first)
	}
	if err := errors.Join(t.translate(), t.placeEnds(function, refused), t.resolve()); err != nil {
		return fmt.Errorf("inline filter: %w", err)
	}
	begin := t.out[0].WithSymbol(first.Symbol())
	t.out[0] = btf.WithFuncMetadata(begin, info).WithSource(first.Source())
	moved := asm.Instruction{OpCode: first.OpCode, Dst: first.Dst, Src: first.Src, Offset: first.Offset, Constant: first.Constant}
	t.out = append(t.out, moved.WithSource(first.Source()))
	spec.Instructions = append(t.out, spec.Instructions[1:]...)
	return nil
}

// placeEnds emits the code at the ends. The original program follows the last of them.
func (t *translator) placeEnds(function string, refused int32) error {
	if !t.isTarget(t.ends.accepted) && !t.isTarget(t.ends.undecided) {
		return errors.New("it accepts nothing")
	}
	if t.isTarget(t.ends.undecided) {
		t.place(t.ends.undecided)
		t.emit(asm.Mov.Reg(asm.R1, regContext), asm.Call.Label(function))
		t.jump(asm.JNE.Imm(asm.R0, 0, ""), t.ends.accepted)
	}
	if t.isTarget(t.ends.refused) || t.isTarget(t.ends.undecided) {
		t.place(t.ends.refused)
		t.emit(asm.Mov.Imm32(asm.R0, refused), asm.Return())
	}
	t.place(t.ends.accepted)
	t.emit(asm.Mov.Reg(asm.R1, regContext))
	return nil
}

// isTarget reports whether a jump leads to a label.
func (t *translator) isTarget(to label) bool {
	for _, j := range t.jumps {
		if j.to == to {
			return true
		}
	}
	return false
}
