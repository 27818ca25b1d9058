package simulator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"
)

// kind is the type of a register's value. Like the verifier, the simulator distinguishes pointers from numbers.
type kind int

const (
	nothing kind = iota
	number
	context
	data    // offset n in the packet
	dataEnd // the end of its linear part
	stack   // n bytes from the frame's end, negative
)

type register struct {
	kind kind
	n    uint64
}

const (
	stackBytes = 512
	// maxSteps is more than a program without loops can run: all jumps go forward.
	maxSteps = 1 << 20
)

type simulation struct {
	body      asm.Instructions
	packet    *Packet
	registers [11]register
	stack     [stackBytes]byte
	written   [stackBytes]bool
}

// Run runs the function at the first instruction, which Translate made, and returns its result. It may call later functions
// by their symbols. It returns an error where the verifier would reject the program: for reading an unwritten register,
// unwritten stack or bytes outside of the packet's linear part, and for other arithmetic with a pointer than an offset in
// the packet.
func Run(body asm.Instructions, packet *Packet) (uint32, error) {
	s := &simulation{body: body, packet: packet}
	s.registers[asm.R1] = register{context, 0}
	s.registers[asm.R10] = register{stack, 0}
	pc := 0
	for range maxSteps {
		if pc < 0 || pc >= len(body) {
			return 0, fmt.Errorf("jump to instruction %d of %d", pc, len(body))
		}
		in := body[pc]
		if in.Reference() != "" && !in.IsFunctionCall() {
			return 0, fmt.Errorf("instruction %d: %v: reference to a symbol", pc, in)
		}
		if isExit(in) {
			result, err := s.number(asm.R0)
			return uint32(result), err
		}
		next, refused, err := s.step(in)
		if err != nil {
			return 0, fmt.Errorf("instruction %d: %v: %w", pc, in, err)
		}
		if refused {
			return 0, nil
		}
		pc += 1 + next
	}
	return 0, errors.New("it does not end")
}

func isExit(in asm.Instruction) bool {
	return in.OpCode.Class() == asm.JumpClass && in.OpCode.JumpOp() == asm.Exit
}

// step returns how many instructions to skip, and whether LD_ABS or LD_IND ended the function.
func (s *simulation) step(in asm.Instruction) (int, bool, error) {
	switch in.OpCode.Class() {
	case asm.LdClass:
		return s.legacyLoad(in)
	case asm.LdXClass:
		return 0, false, s.loadMemory(in)
	case asm.StXClass:
		return 0, false, s.store(in)
	case asm.ALUClass, asm.ALU64Class:
		return 0, false, s.arithmetic(in)
	case asm.JumpClass, asm.Jump32Class:
		next, err := s.jump(in)
		return next, false, err
	default:
		return 0, false, errors.New("the simulator does not know it")
	}
}

func (s *simulation) number(r asm.Register) (uint64, error) {
	if reg := s.registers[r]; reg.kind == number {
		return reg.n, nil
	}
	return 0, fmt.Errorf("%v is no number", r)
}

func (s *simulation) set(r asm.Register, n uint64) { s.registers[r] = register{number, n} }

// clobber forgets the registers that a call does not preserve.
func (s *simulation) clobber() {
	for r := asm.R0; r <= asm.R5; r++ {
		s.registers[r] = register{}
	}
}

func (s *simulation) legacyLoad(in asm.Instruction) (int, bool, error) {
	if s.registers[asm.R6].kind != context || in.Dst != asm.R0 {
		return 0, false, errors.New("LD_ABS and LD_IND want the context in R6 and load R0")
	}
	offset := in.Constant
	switch in.OpCode.Mode() {
	case asm.AbsMode:
	case asm.IndMode:
		x, err := s.number(in.Src)
		if err != nil {
			return 0, false, err
		}
		offset += int64(x)
	default:
		return 0, false, errors.New("the simulator does not know it")
	}
	value, ok := s.packet.load(int32(offset), in.OpCode.Size().Sizeof())
	s.clobber()
	s.set(asm.R0, uint64(value))
	return 0, !ok, nil
}

func (s *simulation) loadMemory(in asm.Instruction) error {
	size := in.OpCode.Size().Sizeof()
	switch base := s.registers[in.Src]; base.kind {
	case context:
		return s.loadContext(in, size)
	case data:
		at := int64(base.n) + int64(in.Offset)
		if at < 0 || at+int64(size) > int64(s.packet.Linear) {
			return errors.New("outside of the packet")
		}
		s.set(in.Dst, littleEndian(s.packet.Data[at:at+int64(size)]))
	case stack:
		at, err := stackPlace(base, in.Offset, size)
		if err != nil {
			return err
		}
		for _, written := range s.written[at : at+size] {
			if !written {
				return errors.New("the stack was not written there")
			}
		}
		s.set(in.Dst, littleEndian(s.stack[at:at+size]))
	default:
		return fmt.Errorf("%v is no pointer", in.Src)
	}
	return nil
}

// loadContext reads struct __sk_buff of linux/bpf.h.
func (s *simulation) loadContext(in asm.Instruction, size int) error {
	p := s.packet
	if size != 4 {
		return errors.New("the fields have four bytes")
	}
	switch in.Offset {
	case 76:
		s.registers[in.Dst] = register{data, 0}
		return nil
	case 80:
		s.registers[in.Dst] = register{dataEnd, uint64(p.Linear)}
		return nil
	}
	value, ok := map[int16]uint32{
		0: uint32(len(p.Data)), 4: p.Type, 8: p.Mark, 12: p.Queue, 16: uint32(bits.ReverseBytes16(p.Protocol)), 20: p.VlanPresent,
		24: p.VlanTag, 28: uint32(bits.ReverseBytes16(p.VlanProto)), 40: p.Interface, 68: p.Hash,
	}[in.Offset]
	if !ok {
		return errors.New("the simulator does not know this field")
	}
	s.set(in.Dst, uint64(value))
	return nil
}

func (s *simulation) store(in asm.Instruction) error {
	size := in.OpCode.Size().Sizeof()
	value, err := s.number(in.Src)
	if err != nil {
		return err
	}
	at, err := stackPlace(s.registers[in.Dst], in.Offset, size)
	if err != nil {
		return err
	}
	var bytes [8]byte
	binary.LittleEndian.PutUint64(bytes[:], value)
	copy(s.stack[at:at+size], bytes[:])
	for i := range size {
		s.written[at+i] = true
	}
	return nil
}

func stackPlace(base register, offset int16, size int) (int, error) {
	at := stackBytes + int(offset)
	if base.kind != stack || at < 0 || at+size > stackBytes || at%size != 0 {
		return 0, errors.New("no place on the stack")
	}
	return at, nil
}

// littleEndian is the simulated host's byte order, on every machine: HostTo is simulated, too.
func littleEndian(b []byte) uint64 {
	var bytes [8]byte
	copy(bytes[:], b)
	return binary.LittleEndian.Uint64(bytes[:])
}
