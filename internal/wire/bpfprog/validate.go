package bpfprog

import (
	"errors"
	"fmt"
)

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
	modeABS  = 0x20
	modeMEM  = 0x60

	opMask  = 0xf0
	opDiv   = 0x30
	opLsh   = 0x60
	opRsh   = 0x70
	opMod   = 0x90
	opJA    = 0x00
	sourceX = 0x08

	// Loads from metadataBase (SKF_AD_OFF) on read the kernel's metadata of the
	// packet, up to SKF_AD_VLAN_TPID.
	metadataBase = 0xfffff000
	metadataLast = metadataBase + 60

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
// (bpf_check_classic in net/core/filter.c), so that the kernel does not refuse
// the program at attach. Opcodes must be known, constant divisors not zero,
// shifts below 32 and jumps in range. Scratch memory must be in bounds and
// written before it is read (ErrScratchMemory). Metadata must exist, and the
// last instruction must return. The nil program is valid.
func (p Program) Validate() error {
	if len(p) == 0 {
		return nil
	}
	if len(p) > MaxInstructions {
		return fmt.Errorf("program has %d instructions, at most %d are allowed", len(p), MaxInstructions)
	}
	for i, in := range p {
		if reason := in.fault(len(p) - i - 1); reason != "" {
			return fmt.Errorf("instruction %d (%d %d %d %d): %s", i, in.Code, in.Jt, in.Jf, in.K, reason)
		}
	}
	if p[len(p)-1].Code&classMask != classRET {
		return fmt.Errorf("program does not end with a return")
	}
	return p.checkScratch()
}

// ErrScratchMemory means that a program may read a word of scratch memory that
// it has not written. libpcap makes such programs of some expressions
// with geneve or vlan.
var ErrScratchMemory = errors.New("it may read scratch memory that was not written")

// checkScratch is the kernel's check_load_and_stores: a word counts
// as written if all jumps to an instruction come with it written. As in the
// kernel, the instruction after a return is reached from it too.
func (p Program) checkScratch() error {
	const all = 1<<memoryWords - 1
	// jumped are the words written at every jump to an instruction so far.
	jumped := make([]uint16, len(p))
	for i := range jumped {
		jumped[i] = all
	}
	written := uint16(0)
	for i, in := range p {
		written &= jumped[i]
		switch class := in.Code & classMask; {
		case class == classST, class == classSTX:
			written |= 1 << in.K
		case (class == classLD || class == classLDX) && in.Code&modeMask == modeMEM:
			if written&(1<<in.K) == 0 {
				return fmt.Errorf("instruction %d (%d %d %d %d): %w", i, in.Code, in.Jt, in.Jf, in.K, ErrScratchMemory)
			}
		case class == classJMP && in.Code&opMask == opJA:
			jumped[i+1+int(in.K)] &= written
			written = all
		case class == classJMP:
			jumped[i+1+int(in.Jt)] &= written
			jumped[i+1+int(in.Jf)] &= written
			written = all
		}
	}
	return nil
}

// fault returns the error of an instruction that has `following`
// instructions after it, or "".
func (in Instruction) fault(following int) string {
	if !knownOps[in.Code] {
		return "unknown opcode"
	}
	switch in.Code & classMask {
	case classALU:
		return in.arithmeticFault()
	case classLD, classLDX, classST, classSTX:
		return in.memoryFault()
	case classJMP:
		if in.Code&opMask == opJA {
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

func (in Instruction) memoryFault() string {
	switch class, mode := in.Code&classMask, in.Code&modeMask; {
	case (class == classST || class == classSTX || mode == modeMEM) && in.K >= memoryWords:
		return "scratch memory out of range"
	case class == classLD && mode == modeABS && in.K >= metadataBase && !in.knownMetadata():
		return "unknown metadata"
	}
	return ""
}

func (in Instruction) arithmeticFault() string {
	if in.Code&sourceX != 0 {
		return ""
	}
	switch op := in.Code & opMask; {
	case (op == opDiv || op == opMod) && in.K == 0:
		return "division by zero"
	case (op == opLsh || op == opRsh) && in.K >= 32:
		return "shift out of range"
	}
	return ""
}

// knownMetadata reports whether the kernel has the metadata that it loads
// (bpf_anc_helper in include/linux/filter.h). All of them have multiples of 4.
func (in Instruction) knownMetadata() bool {
	return in.K <= metadataLast && in.K%4 == 0
}
