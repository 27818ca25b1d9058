package simulator

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/cilium/ebpf/asm"
)

func (s *simulation) arithmetic(in asm.Instruction) error {
	op := in.OpCode.ALUOp()
	if op == asm.Swap {
		return s.swap(in)
	}
	wide := in.OpCode.Class() == asm.ALU64Class
	by := register{number, uint64(in.Constant)}
	if in.OpCode.Source() == asm.RegSource {
		by = s.registers[in.Src]
	}
	if by.kind == nothing {
		return errors.New("the source register was not written")
	}
	if op == asm.Mov {
		return s.move(in.Dst, by, wide)
	}
	dst := s.registers[in.Dst]
	if dst.kind == data && wide && op == asm.Add && by.kind == number {
		s.registers[in.Dst] = register{data, dst.n + by.n}
		return nil
	}
	if dst.kind != number || by.kind != number {
		return errors.New("arithmetic with a pointer or an unwritten register")
	}
	if wide {
		return errors.New("the simulator does not know it")
	}
	result, err := calculate(op, uint32(dst.n), uint32(by.n))
	s.set(in.Dst, uint64(result))
	return err
}

func (s *simulation) move(dst asm.Register, from register, wide bool) error {
	switch {
	case wide:
		s.registers[dst] = from
	case from.kind == number:
		s.set(dst, uint64(uint32(from.n)))
	default:
		return errors.New("half of a pointer")
	}
	return nil
}

func calculate(op asm.ALUOp, a, by uint32) (uint32, error) {
	switch op {
	case asm.Add:
		return a + by, nil
	case asm.Sub:
		return a - by, nil
	case asm.Mul:
		return a * by, nil
	case asm.Div, asm.Mod:
		if by == 0 {
			return 0, errors.New("division by zero")
		}
		if op == asm.Div {
			return a / by, nil
		}
		return a % by, nil
	case asm.Or:
		return a | by, nil
	case asm.And:
		return a & by, nil
	case asm.Xor:
		return a ^ by, nil
	case asm.LSh:
		return a << (by & 31), nil
	case asm.RSh:
		return a >> (by & 31), nil
	case asm.Neg:
		return -a, nil
	default:
		return 0, errors.New("the simulator does not know it")
	}
}

// swap is HostTo: the host is little-endian.
func (s *simulation) swap(in asm.Instruction) error {
	n, err := s.number(in.Dst)
	if err != nil || in.OpCode.Endianness() != asm.BE {
		return errors.Join(err, errors.New("the simulator does not know it"))
	}
	switch in.Constant {
	case 16:
		s.set(in.Dst, uint64(bits.ReverseBytes16(uint16(n))))
	case 32:
		s.set(in.Dst, uint64(bits.ReverseBytes32(uint32(n))))
	default:
		return errors.New("the simulator does not know it")
	}
	return nil
}

func (s *simulation) jump(in asm.Instruction) (int, error) {
	op := in.OpCode.JumpOp()
	if op == asm.Ja {
		return int(in.Offset), nil
	}
	if op == asm.Call {
		return 0, s.call(in)
	}
	left, right := s.registers[in.Dst], register{number, uint64(in.Constant)}
	if in.OpCode.Source() == asm.RegSource {
		right = s.registers[in.Src]
	}
	numbers := left.kind == number && right.kind == number
	if !numbers && (left.kind != data || right.kind != dataEnd) {
		return 0, errors.New("a comparison with a pointer or an unwritten register")
	}
	a, b := left.n, right.n
	if in.OpCode.Class() == asm.Jump32Class {
		if !numbers {
			return 0, errors.New("half of a pointer")
		}
		a, b = uint64(uint32(a)), uint64(uint32(b))
	}
	holds, err := compare(op, a, b)
	if err != nil || !holds {
		return 0, err
	}
	return int(in.Offset), nil
}

func compare(op asm.JumpOp, a, b uint64) (bool, error) {
	switch op {
	case asm.JEq:
		return a == b, nil
	case asm.JNE:
		return a != b, nil
	case asm.JGT:
		return a > b, nil
	case asm.JGE:
		return a >= b, nil
	case asm.JLT:
		return a < b, nil
	case asm.JLE:
		return a <= b, nil
	case asm.JSet:
		return a&b != 0, nil
	default:
		return false, errors.New("the simulator does not know it")
	}
}

func (s *simulation) call(in asm.Instruction) error {
	if in.IsFunctionCall() {
		return s.callFunction(in.Reference())
	}
	s.clobber()
	switch asm.BuiltinFunc(in.Constant) {
	case asm.FnGetSmpProcessorId:
		s.set(asm.R0, uint64(s.packet.CPU))
	case asm.FnGetPrandomU32:
		s.set(asm.R0, uint64(s.packet.Random))
	default:
		return errors.New("the simulator does not know it")
	}
	return nil
}

// callFunction runs another function of the program on the packet.
func (s *simulation) callFunction(name string) error {
	at := slices.IndexFunc(s.body, func(in asm.Instruction) bool { return in.Symbol() == name })
	if name == "" || at < 0 || s.registers[asm.R1].kind != context {
		return fmt.Errorf("no call of a function %q of this program with the packet", name)
	}
	result, err := Run(s.body[at:], s.packet)
	s.clobber()
	s.set(asm.R0, uint64(result))
	return err
}
