package ebpffilter

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// Parts of a classic opcode, from linux/bpf_common.h.
const (
	classMask  = 0x07
	sizeMask   = 0x18
	modeMask   = 0xe0
	opMask     = 0xf0
	sourceX    = 0x08
	returnMask = 0x18
	miscMask   = 0xf8
)

// Fields of struct __sk_buff (linux/bpf.h), all of 32 bits.
const (
	skbLen         = 0
	skbType        = 4
	skbMark        = 8
	skbQueue       = 12
	skbProtocol    = 16 // in the packet's byte order, in the first two bytes
	skbVlanPresent = 20
	skbVlanTag     = 24
	skbVlanProto   = 28 // as skbProtocol
	skbInterface   = 40
	skbHash        = 68
	skbData        = 76
	skbDataEnd     = 80
)

// Loads from ancillaryBase on read metadata instead of the packet (SKF_AD_ in linux/filter.h).
const (
	ancillaryBase        = 0xfffff000
	ancillaryProtocol    = 0
	ancillaryType        = 4
	ancillaryInterface   = 8
	ancillaryMark        = 20
	ancillaryQueue       = 24
	ancillaryHash        = 32
	ancillaryCPU         = 36
	ancillaryXor         = 40
	ancillaryVlanTag     = 44
	ancillaryVlanPresent = 48
	ancillaryRandom      = 56
	ancillaryVlanProto   = 60
)

// packetOutgoing is PACKET_OUTGOING of linux/if_packet.h.
const packetOutgoing = 4

const (
	// maxDirect bounds the end of a direct load at a constant offset: the instruction has 15 bits for it.
	maxDirect = 0x7fff
	// maxIndex bounds a variable offset into the packet: the verifier tracks 16 bits (MAX_PACKET_OFF), and the load itself
	// takes up to four bytes.
	maxIndex = 0xfff0
)

// scratch is the offset of M[k] on the stack: the upper half of a stack slot. The verifier forgets a number that is
// written there, unless it is 0; so each is stored plus one. In a whole slot or a lower half it would remember the
// value, and check the rest of the program once for each value. For `geneve and vlan and port 80` these were a hundred
// values.
func scratch(k uint32) int16 { return -int16(k)*8 - 4 }

func (t *translator) writeScratch(k uint32, from asm.Register) {
	t.emit(asm.Mov.Reg32(asm.R1, from), asm.Add.Imm32(asm.R1, 1), asm.StoreMem(asm.R10, scratch(k), asm.R1, asm.Word))
}

func (t *translator) readScratch(k uint32, to asm.Register) {
	t.emit(asm.LoadMem(to, asm.R10, scratch(k), asm.Word), asm.Sub.Imm32(to, 1))
}

// load translates a load to A.
func (t *translator) load(in bpfprog.Instruction) error {
	switch in.Code & modeMask {
	case unix.BPF_IMM:
		t.emit(asm.Mov.Imm32(regA, int32(in.K)))
	case unix.BPF_MEM:
		t.readScratch(in.K, regA)
	case unix.BPF_LEN:
		t.emit(asm.LoadMem(regA, regContext, skbLen, asm.Word))
	case unix.BPF_ABS:
		if in.K >= ancillaryBase {
			return t.ancillary(in.K - ancillaryBase)
		}
		t.loadAt(regA, in.K, sizeOf(in))
	case unix.BPF_IND:
		t.loadAtX(in.K, sizeOf(in))
	}
	return nil
}

// loadX translates a load to X.
func (t *translator) loadX(in bpfprog.Instruction) {
	switch in.Code & modeMask {
	case unix.BPF_IMM:
		t.emit(asm.Mov.Imm32(regX, int32(in.K)))
	case unix.BPF_MEM:
		t.readScratch(in.K, regX)
	case unix.BPF_LEN:
		t.emit(asm.LoadMem(regX, regContext, skbLen, asm.Word))
	case unix.BPF_MSH: // the length of an IPv4 header
		t.loadAt(regX, in.K, asm.Byte)
		t.emit(asm.And.Imm32(regX, 0xf), asm.LSh.Imm32(regX, 2))
	}
}

func sizeOf(in bpfprog.Instruction) asm.Size {
	switch in.Code & sizeMask {
	case unix.BPF_B:
		return asm.Byte
	case unix.BPF_H:
		return asm.Half
	default:
		return asm.Word
	}
}

// loadAt loads from a constant offset. Offsets from 1<<31 on are relative to the link or network header, as in the kernel.
func (t *translator) loadAt(dst asm.Register, k uint32, size asm.Size) {
	legacy := asm.LoadAbs(int32(k), size)
	switch far := k > maxDirect-uint32(size.Sizeof()); {
	case t.ends != nil && far:
		// The code after the jump is unreachable. The verifier must not know that in advance, or it rejects the
		// program.
		t.emit(asm.Mov.Imm32(asm.R0, 0))
		t.jump(asm.JEq.Imm32(asm.R0, 0, ""), t.ends.undecided)
		return
	case t.indirect || far:
		t.emit(legacy, asm.Mov.Reg32(dst, asm.R0))
		return
	}
	t.emit(
		asm.LoadMem(asm.R1, regContext, skbData, asm.Word),
		asm.LoadMem(asm.R2, regContext, skbDataEnd, asm.Word),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Add.Imm(asm.R3, int32(k)+int32(size.Sizeof())),
	)
	t.loadLinear(dst, int16(k), size, t.outside(), legacy)
}

// loadAtX loads A from X + k.
func (t *translator) loadAtX(k uint32, size asm.Size) {
	legacy := asm.LoadInd(asm.R0, regX, int32(k), size)
	if t.indirect {
		t.emit(legacy, asm.Mov.Reg32(regA, asm.R0))
		return
	}
	outside := t.outside()
	t.emit(asm.Mov.Reg32(asm.R3, regX), asm.Add.Imm32(asm.R3, int32(k)))
	t.jump(asm.JGT.Imm(asm.R3, maxIndex, ""), outside)
	t.emit(
		asm.LoadMem(asm.R1, regContext, skbData, asm.Word),
		asm.LoadMem(asm.R2, regContext, skbDataEnd, asm.Word),
		asm.Add.Reg(asm.R1, asm.R3),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Add.Imm(asm.R3, int32(size.Sizeof())),
	)
	t.loadLinear(regA, 0, size, outside, legacy)
}

// outside returns the jump target of a load whose bytes are outside of the linear part.
func (t *translator) outside() label {
	if t.ends != nil {
		return t.ends.undecided
	}
	return t.newLabel()
}

// loadLinear loads from R1 if the end of the bytes in R3 is not beyond the end of the linear part in R2. Otherwise a function
// uses the legacy instruction after the label outside; an inlined filter jumps to outside, which placeEnds places.
func (t *translator) loadLinear(dst asm.Register, offset int16, size asm.Size, outside label, legacy asm.Instruction) {
	direct, done := t.newLabel(), t.newLabel()
	if t.ends != nil {
		t.jump(asm.JGT.Reg(asm.R3, asm.R2, ""), outside)
	} else {
		t.jump(asm.JLE.Reg(asm.R3, asm.R2, ""), direct)
		t.place(outside)
		t.emit(legacy, asm.Mov.Reg32(dst, asm.R0))
		t.jump(asm.Ja.Label(""), done)
	}
	t.place(direct)
	t.emit(asm.LoadMem(dst, asm.R1, offset, size))
	t.hostOrder(dst, size)
	t.place(done)
}

// hostOrder converts a loaded number to the host's byte order. LD_ABS and LD_IND do that themselves.
func (t *translator) hostOrder(dst asm.Register, size asm.Size) {
	if size != asm.Byte {
		t.emit(asm.HostTo(asm.BE, dst, size))
	}
}

// ancillary loads metadata of the packet to A.
func (t *translator) ancillary(k uint32) error {
	switch k {
	case ancillaryProtocol:
		t.emit(asm.LoadMem(regA, regContext, skbProtocol, asm.Word), asm.HostTo(asm.BE, regA, asm.Half))
	case ancillaryVlanProto:
		t.emit(asm.LoadMem(regA, regContext, skbVlanProto, asm.Word), asm.HostTo(asm.BE, regA, asm.Half))
	case ancillaryType:
		return t.packetType()
	case ancillaryCPU:
		t.emit(asm.FnGetSmpProcessorId.Call(), asm.Mov.Reg32(regA, asm.R0))
	case ancillaryRandom:
		t.emit(asm.FnGetPrandomU32.Call(), asm.Mov.Reg32(regA, asm.R0))
	case ancillaryXor:
		t.emit(asm.Xor.Reg32(regA, regX))
	default:
		field, ok := ancillaryFields[k]
		if !ok {
			return unknownAncillary(k)
		}
		t.emit(asm.LoadMem(regA, regContext, field, asm.Word))
	}
	return nil
}

// ErrDirection is returned for a program that tests the packet type and is translated without AtIngress or AtEgress.
var ErrDirection = errors.New("it tests whether packets arrive or leave: translate it with AtIngress or AtEgress")

func (t *translator) packetType() error {
	switch t.direction {
	case ingress:
		t.emit(asm.LoadMem(regA, regContext, skbType, asm.Word))
	case egress:
		t.emit(asm.Mov.Imm32(regA, packetOutgoing))
	default:
		return ErrDirection
	}
	return nil
}

// ancillaryFields are the metadata in the context of a program at tc.
var ancillaryFields = map[uint32]int16{
	ancillaryInterface:   skbInterface,
	ancillaryMark:        skbMark,
	ancillaryQueue:       skbQueue,
	ancillaryHash:        skbHash,
	ancillaryVlanTag:     skbVlanTag,
	ancillaryVlanPresent: skbVlanPresent,
}

// unavailable is metadata that a packet socket's filter can load and a program at tc cannot.
var unavailable = map[uint32]string{
	12: "netlink attributes", 16: "nested netlink attributes", 28: "the device's hardware type", 52: "the payload's offset",
}

func unknownAncillary(k uint32) error {
	if what := unavailable[k]; what != "" {
		return fmt.Errorf("it loads %s, which programs at tc cannot", what)
	}
	return errors.New("it loads metadata that no kernel has")
}
