package ebpffilter

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// The registers of a translated function, which helper calls preserve. R0 to R5 are free between two classic instructions,
// and R9 is not used.
const (
	regContext = asm.R6 // LD_ABS and LD_IND need it there
	regA       = asm.R7 // its upper half is always 0
	regX       = asm.R8 // its upper half is always 0
)

// Option is an option of Translate and Inline.
type Option func(*translator)

// libpcap's `inbound` and `outbound` test the packet type for PACKET_OUTGOING, which is not set yet at tc. A program
// that tests it needs one of the following two options.

// AtIngress translates for a program at ingress.
func AtIngress() Option { return func(t *translator) { t.direction = ingress } }

// AtEgress translates for a program at egress.
func AtEgress() Option { return func(t *translator) { t.direction = egress } }

type direction int

const (
	unknown direction = iota
	ingress
	egress
)

// Translate makes a classic program the body of the eBPF function
//
//	int f(struct __sk_buff *skb)
//
// which returns the same as the classic program: 0 refuses the packet. Its jumps are offsets and it has no symbols, so
// that Replace can put it into any program. If the kernel would reject the program, or if it cannot be translated, the
// error names the instruction, counted from 0.
func Translate(program bpfprog.Program, options ...Option) (asm.Instructions, error) {
	t, err := newTranslator(program, options)
	if err != nil {
		return nil, fmt.Errorf("translate filter: %w", err)
	}
	if err := errors.Join(t.translate(), t.resolve()); err != nil {
		return nil, fmt.Errorf("translate filter: %w", err)
	}
	return t.out, nil
}

func newTranslator(program bpfprog.Program, options []Option) (*translator, error) {
	if len(program) == 0 {
		return nil, errors.New("the program is empty")
	}
	t := &translator{program: program, places: make([]int, len(program))}
	for _, option := range options {
		option(t)
	}
	return t, t.program.Validate()
}

// label is a jump target in the output: the first len(program) are the classic instructions.
type label int

// jump is an instruction of the output whose offset is not set yet.
type jump struct {
	at int
	to label
}

type translator struct {
	program bpfprog.Program
	out     asm.Instructions
	jumps   []jump
	// places are the labels' indexes in out. Indexes are offsets, too: no emitted instruction has a double length.
	places    []int
	direction direction
	// indirect makes all loads treat their bytes as outside of the linear part; tests set it.
	indirect bool
	// ends is nil for a function, which returns its result; an inlined filter jumps to them.
	ends *ends
}

func (t *translator) translate() error {
	t.emit(
		asm.Mov.Reg(regContext, asm.R1),
		asm.Mov.Imm32(regA, 0),
		asm.Mov.Imm32(regX, 0),
	)
	reached := reached(t.program)
	for pc, in := range t.program {
		// The verifier rejects unreachable instructions.
		if !reached[pc] {
			continue
		}
		t.place(label(pc))
		if err := t.instruction(pc, in); err != nil {
			return fmt.Errorf("instruction %d (%d %d %d %d) cannot be translated: %w", pc, in.Code, in.Jt, in.Jf, in.K, err)
		}
	}
	return nil
}

// resolve sets the offsets of the jumps.
func (t *translator) resolve() error {
	for _, j := range t.jumps {
		offset := t.places[j.to] - j.at - 1
		if offset > math.MaxInt16 {
			return fmt.Errorf("the program is too long: a jump over %d instructions, at most %d are possible", offset, math.MaxInt16)
		}
		t.out[j.at].Offset = int16(offset)
	}
	return nil
}

func (t *translator) emit(instructions ...asm.Instruction) {
	t.out = append(t.out, instructions...)
}

// jump emits a jump to a label that is placed later.
func (t *translator) jump(in asm.Instruction, to label) {
	t.jumps = append(t.jumps, jump{at: len(t.out), to: to})
	// Drop the reference: it would be resolved as a symbol.
	t.emit(asm.Instruction{OpCode: in.OpCode, Dst: in.Dst, Src: in.Src, Constant: in.Constant})
}

// newLabel returns a label within a classic instruction.
func (t *translator) newLabel() label {
	t.places = append(t.places, 0)
	return label(len(t.places) - 1)
}

// place puts a label before the next instruction that is emitted.
func (t *translator) place(l label) { t.places[l] = len(t.out) }

func (t *translator) instruction(pc int, in bpfprog.Instruction) error {
	switch in.Code & classMask {
	case unix.BPF_LD:
		return t.load(in)
	case unix.BPF_LDX:
		t.loadX(in)
	case unix.BPF_ST:
		t.writeScratch(in.K, regA)
	case unix.BPF_STX:
		t.writeScratch(in.K, regX)
	case unix.BPF_ALU:
		return t.arithmetic(in)
	case unix.BPF_JMP:
		return t.branch(pc, in)
	case unix.BPF_RET:
		t.end(in)
	case unix.BPF_MISC:
		if in.Code&miscMask == unix.BPF_TXA {
			t.emit(asm.Mov.Reg32(regA, regX))
			break
		}
		t.emit(asm.Mov.Reg32(regX, regA))
	}
	return nil
}

// end translates a return.
func (t *translator) end(in bpfprog.Instruction) {
	byA := in.Code&returnMask == unix.BPF_A
	switch {
	case t.ends == nil && byA:
		t.emit(asm.Mov.Reg32(asm.R0, regA), asm.Return())
	case t.ends == nil:
		t.emit(asm.Mov.Imm32(asm.R0, int32(in.K)), asm.Return())
	case byA:
		t.jump(asm.JEq.Imm32(regA, 0, ""), t.ends.refused)
		t.jump(asm.Ja.Label(""), t.ends.accepted)
	case in.K == 0:
		t.jump(asm.Ja.Label(""), t.ends.refused)
	default:
		t.jump(asm.Ja.Label(""), t.ends.accepted)
	}
}

// reached reports which instructions are reachable.
func reached(program bpfprog.Program) []bool {
	reached := make([]bool, len(program))
	reached[0] = true
	for pc, in := range program {
		if !reached[pc] {
			continue
		}
		switch {
		case in.Code&classMask == unix.BPF_RET:
		case in.Code&classMask != unix.BPF_JMP:
			reached[pc+1] = true
		case in.Code&opMask == unix.BPF_JA:
			reached[pc+1+int(in.K)] = true
		default:
			reached[pc+1+int(in.Jt)], reached[pc+1+int(in.Jf)] = true, true
		}
	}
	return reached
}
