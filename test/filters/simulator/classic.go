package simulator

import (
	"fmt"

	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
)

// machine is the state of a classic program.
type machine struct {
	packet *Packet
	a, x   uint32
	memory [16]uint32
}

// outcome is the effect of an instruction on the run.
type outcome int

const (
	goOn outcome = iota
	refuse
	unknown
)

// Classic runs a classic program that bpfprog.Program.Validate accepts, as the kernel does for a packet socket, and returns
// its result. An unknown instruction is an error.
func Classic(program bpfprog.Program, packet *Packet) (uint32, error) {
	m := machine{packet: packet}
	for pc := 0; ; pc++ {
		in := program[pc]
		done := goOn
		switch in.Code & 7 {
		case 0:
			done = m.load(in)
		case 1:
			done = m.loadX(in)
		case 2:
			m.memory[in.K] = m.a
		case 3:
			m.memory[in.K] = m.x
		case 4:
			done = m.arithmetic(in)
		case 5:
			pc += m.jump(in)
		case 6:
			if in.Code == 0x16 {
				return m.a, nil
			}
			return in.K, nil
		case 7:
			if in.Code == 0x87 {
				m.a = m.x
			} else {
				m.x = m.a
			}
		}
		switch done {
		case refuse:
			return 0, nil
		case goOn:
		case unknown:
			return 0, fmt.Errorf("classic instruction %d: opcode %#x, k %#x", pc, in.Code, in.K)
		}
	}
}

func (m *machine) load(in bpfprog.Instruction) outcome {
	size := map[uint16]int{0x00: 4, 0x08: 2, 0x10: 1}[in.Code&0x18]
	switch in.Code {
	case 0x00:
		m.a = in.K
	case 0x60:
		m.a = m.memory[in.K]
	case 0x80:
		m.a = uint32(len(m.packet.Data))
	case 0x20, 0x28, 0x30:
		if in.K >= 0xfffff000 {
			return m.metadata(in.K - 0xfffff000)
		}
		return m.fetch(&m.a, in.K, size)
	case 0x40, 0x48, 0x50:
		return m.fetch(&m.a, m.x+in.K, size)
	default:
		return unknown
	}
	return goOn
}

func (m *machine) loadX(in bpfprog.Instruction) outcome {
	switch in.Code {
	case 0x01:
		m.x = in.K
	case 0x61:
		m.x = m.memory[in.K]
	case 0x81:
		m.x = uint32(len(m.packet.Data))
	case 0xb1:
		var first uint32
		if m.fetch(&first, in.K, 1) == refuse {
			return refuse
		}
		m.x = first & 0xf * 4
	default:
		return unknown
	}
	return goOn
}

func (m *machine) fetch(into *uint32, offset uint32, size int) outcome {
	value, ok := m.packet.load(int32(offset), size)
	if !ok {
		return refuse
	}
	*into = value
	return goOn
}

func (m *machine) metadata(k uint32) outcome {
	if k == 40 {
		m.a ^= m.x
		return goOn
	}
	p := m.packet
	value, ok := map[uint32]uint32{
		0: uint32(p.Protocol), 4: p.Type, 8: p.Interface, 20: p.Mark, 24: p.Queue, 32: p.Hash, 36: p.CPU,
		44: p.VlanTag, 48: p.VlanPresent, 56: p.Random, 60: uint32(p.VlanProto),
	}[k]
	if !ok {
		return unknown
	}
	m.a = value
	return goOn
}

func (m *machine) arithmetic(in bpfprog.Instruction) outcome {
	by := in.K
	if in.Code&8 != 0 {
		by = m.x
	}
	switch in.Code & 0xf0 {
	case 0x00:
		m.a += by
	case 0x10:
		m.a -= by
	case 0x20:
		m.a *= by
	case 0x30, 0x90:
		if by == 0 {
			return refuse
		}
		if in.Code&0xf0 == 0x30 {
			m.a /= by
		} else {
			m.a %= by
		}
	case 0x40:
		m.a |= by
	case 0x50:
		m.a &= by
	case 0x60:
		m.a <<= by & 31
	case 0x70:
		m.a >>= by & 31
	case 0x80:
		m.a = -m.a
	case 0xa0:
		m.a ^= by
	default:
		return unknown
	}
	return goOn
}

// jump returns how many instructions to skip.
func (m *machine) jump(in bpfprog.Instruction) int {
	with := in.K
	if in.Code&8 != 0 {
		with = m.x
	}
	var holds bool
	switch in.Code & 0xf0 {
	case 0x00:
		return int(in.K)
	case 0x10:
		holds = m.a == with
	case 0x20:
		holds = m.a > with
	case 0x30:
		holds = m.a >= with
	case 0x40:
		holds = m.a&with != 0
	}
	if holds {
		return int(in.Jt)
	}
	return int(in.Jf)
}
