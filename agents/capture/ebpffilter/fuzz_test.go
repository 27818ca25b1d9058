package ebpffilter_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/ebpffilter"
	"github.com/sonde-operator/sonde/internal/wire/bpfprog"
	"github.com/sonde-operator/sonde/test/filters/simulator"
)

// knownOps are the opcodes that bpfprog.Program.Validate accepts.
var knownOps = []byte{
	0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03,
	0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84, 0x94, 0x9c, 0xa4, 0xac,
	0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07, 0x87,
}

// FuzzTranslate: the translation decides like the classic program, wherever the packet's linear part ends, and has the
// form that the verifier accepts. It loads nothing into the kernel.
func FuzzTranslate(f *testing.F) {
	packet := frame()
	for _, tc := range programs {
		f.Add(raw(tc.program), packet, byte(60), byte(14), false)
		f.Add(raw(tc.program), packet[:20], byte(255), byte(0), true)
	}
	f.Fuzz(func(t *testing.T, program, data []byte, linear, network byte, tamed bool) {
		filter := decode(program)
		if tamed {
			filter = tame(filter)
		}
		if len(data) > 4096 || len(filter) > 4096 {
			return
		}
		body, err := ebpffilter.Translate(filter, ebpffilter.AtIngress())
		if err != nil {
			if len(filter) > 0 && filter.Validate() == nil &&
				!strings.Contains(err.Error(), "cannot be translated") && !strings.Contains(err.Error(), "is too long") {
				t.Fatalf("a valid program: %v", err)
			}
			return
		}
		if err := filter.Validate(); err != nil {
			t.Fatalf("translated in spite of %v", err)
		}
		checkForm(t, body)
		p := &simulator.Packet{
			Data: data, Linear: min(int(linear), len(data)), Network: min(int(network), int(linear), len(data)),
			Protocol: 0x86dd, VlanProto: 0x8100, Type: 3, VlanTag: 0xfff, VlanPresent: 1, Interface: 2, Mark: 0x80000000, Queue: 1,
			Hash: 0xffffffff, CPU: 1, Random: 0x12345678,
		}
		want, err := simulator.Classic(filter, p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := simulator.Run(body, p); err != nil || got != want {
			t.Fatalf("translated %#x, %v, classic %#x\n%v\n%v", got, err, want, filter, body)
		}
		other, err := ebpffilter.Translate(filter, ebpffilter.AtIngress(), ebpffilter.WithoutDirectLoads())
		if err != nil {
			t.Fatal(err)
		}
		checkForm(t, other)
		if got, err := simulator.Run(other, p); err != nil || got != want {
			t.Fatalf("without direct loads %#x, %v, classic %#x\n%v\n%v", got, err, want, filter, other)
		}
		checkInline(t, filter, p, want)
	})
}

func raw(program bpfprog.Program) []byte {
	var b []byte
	for _, in := range program {
		b = binary.LittleEndian.AppendUint16(b, in.Code)
		b = append(b, in.Jt, in.Jf)
		b = binary.LittleEndian.AppendUint32(b, in.K)
	}
	return b
}

func decode(b []byte) bpfprog.Program {
	var program bpfprog.Program
	for ; len(b) >= 8; b = b[8:] {
		program = append(program, bpfprog.Instruction{
			Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return program
}

// tame makes most programs valid: few random ones are.
func tame(program bpfprog.Program) bpfprog.Program {
	var out bpfprog.Program
	for k := range uint32(4) { // all words of scratch memory are mapped to these
		out = append(out, op(unix.BPF_ST, k))
	}
	for i, in := range program {
		left := len(program) - i // a return is appended
		if !slices.Contains(knownOps, byte(in.Code)) {
			in.Code = uint16(knownOps[int(in.Code)%len(knownOps)])
		}
		in.Code &= 0xff
		in.Jt, in.Jf = byte(int(in.Jt)%left), byte(int(in.Jf)%left)
		switch in.Code {
		case unix.BPF_JMP | unix.BPF_JA:
			in.K %= uint32(left)
		case unix.BPF_ST, unix.BPF_STX, unix.BPF_LD | unix.BPF_MEM, unix.BPF_LDX | unix.BPF_MEM:
			in.K %= 4
		case alu | unix.BPF_LSH, alu | unix.BPF_RSH:
			in.K %= 32
		case alu | unix.BPF_DIV, alu | unix.BPF_MOD:
			in.K |= 1
		case ldb, ldh, ldw:
			if in.K >= metadata {
				in.K = metadata + in.K%64&^3
			}
		}
		out = append(out, in)
	}
	return append(out, op(retA, 0))
}

// checkForm checks the form that the verifier requires: jumps go forward and stay inside, all instructions are
// reachable, and the stack is not exceeded.
func checkForm(t *testing.T, body asm.Instructions) {
	t.Helper()
	reached := make([]bool, len(body)+1)
	reached[0] = true
	for i, in := range body {
		if !reached[i] {
			t.Fatalf("instruction %d is not reached:\n%v", i, body)
		}
		if in.Offset < -124 || in.Offset < 0 && in.OpCode.Class().IsJump() {
			t.Fatalf("instruction %d has offset %d:\n%v", i, in.Offset, body)
		}
		op := in.OpCode.JumpOp()
		if !in.OpCode.Class().IsJump() || op != asm.Exit && op != asm.Ja {
			reached[i+1] = true
		}
		if in.OpCode.Class().IsJump() && op != asm.Exit && op != asm.Call {
			if i+1+int(in.Offset) >= len(body) {
				t.Fatalf("instruction %d jumps past the end:\n%v", i, body)
			}
			reached[i+1+int(in.Offset)] = true
		}
	}
	if reached[len(body)] {
		t.Fatalf("the end is reached:\n%v", body)
	}
}

// TestTame shows that tame makes a valid program from any input.
func TestTame(t *testing.T) {
	var all bpfprog.Program
	for code := range 256 {
		all = append(all, bpfprog.Instruction{Code: uint16(code), Jt: byte(code), Jf: 255, K: 0xffffffff - uint32(code)})
	}
	if err := tame(all).Validate(); err != nil {
		t.Error(err)
	}
}
