package ebpffilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// ends are where a filter leads that is no function.
type ends struct {
	accepted, refused, undecided label
}

// Inline puts a filter before a compiled program at tc as well, of which Replace has made a function: a packet that the
// filter refuses is answered with the constant refused, and what the program itself sees is accepted. That saves a call and
// a return for each packet. Where a byte is not in the packet's linear part it calls the function, which decides as always.
// The verifier looks at the filter as a part of the program then, and may refuse what it takes as a function. On an error the
// program is unchanged; a filter that accepts nothing is one.
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

// placeEnds emits what the ends do. Behind the last of them comes the program.
func (t *translator) placeEnds(function string, refused int32) error {
	if !t.leads(t.ends.accepted) && !t.leads(t.ends.undecided) {
		return errors.New("it accepts nothing")
	}
	if t.leads(t.ends.undecided) {
		t.place(t.ends.undecided)
		t.emit(asm.Mov.Reg(asm.R1, regContext), asm.Call.Label(function))
		t.jump(asm.JNE.Imm(asm.R0, 0, ""), t.ends.accepted)
	}
	if t.leads(t.ends.refused) || t.leads(t.ends.undecided) {
		t.place(t.ends.refused)
		t.emit(asm.Mov.Imm32(asm.R0, refused), asm.Return())
	}
	t.place(t.ends.accepted)
	t.emit(asm.Mov.Reg(asm.R1, regContext))
	return nil
}

// leads reports whether something jumps to a label.
func (t *translator) leads(to label) bool {
	for _, j := range t.jumps {
		if j.to == to {
			return true
		}
	}
	return false
}
