package ring

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/privileged"
)

// slow is a program at a tracepoint that runs for some 100 ms.
type slow struct {
	*ebpf.Program
	memory *ebpf.Memory
}

// noCall is the number of no system call. The program runs at a call of it, and says at these offsets of its memory that it has begun and
// ended.
const noCall, begun, ended = 2000, 0, 8

func newSlow(t *testing.T) slow {
	t.Helper()
	const copies, size = 20000, 60 << 10
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 2 * size, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R1, asm.R1, 8, asm.DWord), // the number of the system call
		asm.JNE.Imm(asm.R1, noCall, "exit"),
		asm.LoadMapValue(asm.R6, m.FD(), 0),
		asm.Mov.Imm(asm.R8, 1),
		asm.StoreMem(asm.R6, begun, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R7, 0),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("copy"),
		asm.Add.Imm(asm.R1, size),
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, asm.R6),
		asm.FnProbeReadKernel.Call(),
		asm.Add.Imm(asm.R7, 1),
		asm.JLT.Imm(asm.R7, copies, "copy"),
		asm.StoreMem(asm.R6, ended, asm.R8, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	memory, err := m.Memory()
	if err != nil {
		t.Fatal(err)
	}
	return slow{p, memory}
}

func (s slow) says(t *testing.T, offset int64) bool {
	t.Helper()
	var b [8]byte
	if _, err := s.memory.ReadAt(b[:], offset); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(b[:]) != 0
}

// run lets the program run, detaches it, and awaits it. It reports whether it ran when it was detached, and whether it has ended.
func (s slow) run(t *testing.T) (overlapped, over bool) {
	t.Helper()
	if _, err := s.memory.WriteAt(make([]byte, 16), 0); err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sys_enter", Program: s.Program})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _, _ = unix.Syscall(noCall, 0, 0, 0)
	}()
	for start := time.Now(); !s.says(t, begun); runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the program does not run")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	overlapped = !s.says(t, ended)
	AwaitPrograms()
	over = s.says(t, ended)
	<-called
	return overlapped, over
}

// TestAwaitPrograms checks that a program that was running when it was detached has ended.
func TestAwaitPrograms(t *testing.T) {
	privileged.Need(t)
	s := newSlow(t)
	left := 5
	for range 100 { // on a busy machine the program may be over first
		overlapped, over := s.run(t)
		if !over {
			t.Fatal("the program still runs")
		}
		if overlapped {
			left--
		}
		if left == 0 {
			return
		}
	}
	t.Error("the program seldom ran when it was detached")
}
