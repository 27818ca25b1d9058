package bpfprog

import "fmt"

// Parts of an opcode and their values, from linux/bpf_common.h.
const (
	classMask = 0x07
	classLD   = 0x00
	classLDX  = 0x01
	classST   = 0x02
	classSTX  = 0x03
	classALU  = 0x04
	classJMP  = 0x05
	classRET  = 0x06
	classMISC = 0x07

	modeMask = 0xe0
	modeMEM  = 0x60

	opMask  = 0xf0
	opDiv   = 0x30
	opLsh   = 0x60
	opRsh   = 0x70
	opMod   = 0x90
	opJA    = 0x00
	sourceX = 0x08

	// memoryWords is the size of the scratch memory M[] (BPF_MEMWORDS).
	memoryWords = 16
)

// knownOps are the opcodes that the kernel lets a socket filter have:
// chk_code_allowed in net/core/filter.c.
var knownOps = map[uint16]bool{
	0x00: true, 0x20: true, 0x28: true, 0x30: true, 0x40: true, 0x48: true, 0x50: true, 0x60: true, 0x80: true, // ld
	0x01: true, 0x61: true, 0x81: true, 0xb1: true, // ldx
	0x02: true, 0x03: true, // st, stx
	0x04: true, 0x0c: true, 0x14: true, 0x1c: true, 0x24: true, 0x2c: true, 0x34: true, 0x3c: true, // + - * /
	0x44: true, 0x4c: true, 0x54: true, 0x5c: true, 0x64: true, 0x6c: true, 0x74: true, 0x7c: true, // | & << >>
	0x84: true, 0x94: true, 0x9c: true, 0xa4: true, 0xac: true, // neg % ^
	0x05: true, 0x15: true, 0x1d: true, 0x25: true, 0x2d: true, 0x35: true, 0x3d: true, 0x45: true, 0x4d: true, // jumps
	0x06: true, 0x16: true, // ret
	0x07: true, 0x87: true, // tax, txa
}

// Validate applies the kernel's static checks of a socket filter
// (bpf_check_classic in net/core/filter.c), so that a program of libpcap that
// passes is not refused at attach: known opcodes, no constant division by zero
// or shift of 32 and more, scratch memory in bounds, jumps in range, a return
// at the end. Only the kernel checks that scratch memory is written before it
// is read. The nil program is valid.
func (p Program) Validate() error {
	if len(p) == 0 {
		return nil
	}
	if len(p) > MaxInstructions {
		return fmt.Errorf("program has %d instructions, at most %d are allowed", len(p), MaxInstructions)
	}
	for i, in := range p {
		if reason := in.fault(len(p) - i - 1); reason != "" {
			return fmt.Errorf("instruction %d (%d %d %d %d): %s", i, in.Op, in.Jt, in.Jf, in.K, reason)
		}
	}
	if p[len(p)-1].Op&classMask != classRET {
		return fmt.Errorf("program does not end with a return")
	}
	return nil
}

// fault says what is wrong with an instruction that has `following`
// instructions after it, or "".
func (in Instruction) fault(following int) string {
	if !knownOps[in.Op] {
		return "unknown opcode"
	}
	switch class := in.Op & classMask; class {
	case classALU:
		return in.arithmeticFault()
	case classLD, classLDX, classST, classSTX:
		store := class == classST || class == classSTX
		if (store || in.Op&modeMask == modeMEM) && in.K >= memoryWords {
			return "scratch memory out of range"
		}
	case classJMP:
		if in.Op&opMask == opJA {
			if uint64(in.K) >= uint64(following) {
				return "jump past the end"
			}
			return ""
		}
		if int(in.Jt) >= following || int(in.Jf) >= following {
			return "jump past the end"
		}
	}
	return ""
}

func (in Instruction) arithmeticFault() string {
	if in.Op&sourceX != 0 {
		return ""
	}
	switch op := in.Op & opMask; {
	case (op == opDiv || op == opMod) && in.K == 0:
		return "division by zero"
	case (op == opLsh || op == opRsh) && in.K >= 32:
		return "shift out of range"
	}
	return ""
}
