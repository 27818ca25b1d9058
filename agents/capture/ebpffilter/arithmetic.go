package ebpffilter

import (
	"errors"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

var operations = map[uint16]asm.ALUOp{
	unix.BPF_ADD: asm.Add, unix.BPF_SUB: asm.Sub, unix.BPF_MUL: asm.Mul, unix.BPF_DIV: asm.Div, unix.BPF_MOD: asm.Mod,
	unix.BPF_OR: asm.Or, unix.BPF_AND: asm.And, unix.BPF_XOR: asm.Xor, unix.BPF_LSH: asm.LSh, unix.BPF_RSH: asm.RSh,
}

var errUnknown = errors.New("the opcode is unknown")

func (t *translator) arithmetic(in bpfprog.Instruction) error {
	op := in.Code & opMask
	if op == unix.BPF_NEG {
		t.emit(asm.Neg.Imm32(regA, 0))
		return nil
	}
	operation, ok := operations[op]
	if !ok {
		return errUnknown
	}
	if in.Code&sourceX == 0 {
		t.emit(operation.Imm32(regA, int32(in.K)))
		return nil
	}
	switch divides := op == unix.BPF_DIV || op == unix.BPF_MOD; {
	case divides && t.ends != nil:
		t.jump(asm.JEq.Imm32(regX, 0, ""), t.ends.refused)
	case divides:
		divide := t.newLabel()
		t.jump(asm.JNE.Imm32(regX, 0, ""), divide)
		t.emit(asm.Mov.Imm32(asm.R0, 0), asm.Return())
		t.place(divide)
	}
	t.emit(operation.Reg32(regA, regX))
	return nil
}

// comparison is a jump's condition and its negation.
type comparison struct {
	is, isNot asm.JumpOp
}

// JSET has no negation.
var comparisons = map[uint16]comparison{
	unix.BPF_JEQ:  {asm.JEq, asm.JNE},
	unix.BPF_JGT:  {asm.JGT, asm.JLE},
	unix.BPF_JGE:  {asm.JGE, asm.JLT},
	unix.BPF_JSET: {asm.JSet, asm.InvalidJumpOp},
}

func (t *translator) branch(pc int, in bpfprog.Instruction) error {
	next := label(pc + 1)
	if in.Code&opMask == unix.BPF_JA {
		t.jumpUnless(next, next+label(in.K))
		return nil
	}
	compare, ok := comparisons[in.Code&opMask]
	if !ok {
		return errUnknown
	}
	then, otherwise := next+label(in.Jt), next+label(in.Jf)
	switch {
	case then == otherwise:
		t.jumpUnless(next, then)
	case then == next && compare.isNot != asm.InvalidJumpOp:
		t.jump(conditional(compare.isNot, in), otherwise)
	default:
		t.jump(conditional(compare.is, in), then)
		t.jumpUnless(next, otherwise)
	}
	return nil
}

// conditional compares A with X or K as 32-bit numbers.
func conditional(op asm.JumpOp, in bpfprog.Instruction) asm.Instruction {
	if in.Code&sourceX != 0 {
		return op.Reg32(regA, regX, "")
	}
	return op.Imm32(regA, int32(in.K), "")
}

// jumpUnless jumps, unless the target is the next instruction. A jump over unreachable instructions, which are not emitted,
// remains as a jump of 0, which the verifier accepts.
func (t *translator) jumpUnless(next, to label) {
	if to != next {
		t.jump(asm.Ja.Label(""), to)
	}
}
