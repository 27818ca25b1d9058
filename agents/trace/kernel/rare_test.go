package kernel

import (
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/sonde-operator/sonde/test/privileged"
)

// Events that are not due take bounded memory, and the others stay in the ring. All are read when they are due.
func TestRareEventsThatAreNotDueTakeBoundedMemory(t *testing.T) {
	const size, each = 512, 2048
	r, write := newRareRing(t, size)
	written := 0
	for range 4 * maxQueued / (each * size) {
		if before := r.reader.AvailableBytes(); before == 0 { // else it would lose some
			write(each)
			written += each
		}
		if err := r.Read(); err != nil {
			t.Fatal(err)
		}
		if got := len(r.queue) * size; got > maxQueued {
			t.Fatalf("%d bytes in memory, %d in the ring", got, r.reader.AvailableBytes())
		}
	}
	if written*size <= maxQueued {
		t.Fatalf("only %d bytes were written", written*size)
	}
	read := 0
	for {
		if err := r.Read(); err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Time(); !ok {
			break
		}
		var e Record
		if err := r.Next(&e); err != nil {
			t.Fatal(err)
		}
		read++
	}
	if read != written || r.bytes != 0 {
		t.Errorf("%d of %d events were read, %d bytes are left", read, written, r.bytes)
	}
}

// Events that a full queue leaves in the ring follow on those in it, before the next Read: the caller has later events of other rings.
func TestRareEventsThatFollowOnAFullQueue(t *testing.T) {
	const size, each = 512, 2048
	r, write := newRareRing(t, size)
	written := 0
	for r.reader.AvailableBytes() == 0 {
		write(each)
		written += each
		if err := r.Read(); err != nil {
			t.Fatal(err)
		}
	}
	read := 0
	for _, ok := r.Time(); ok; _, ok = r.Time() {
		var e Record
		if err := r.Next(&e); err != nil {
			t.Fatal(err)
		}
		read++
	}
	if read != written {
		t.Errorf("%d of %d events were read", read, written)
	}
}

// newRareRing returns a ring, and a function that has a program write records of size bytes to it.
func newRareRing(t *testing.T, size int) (*RareRing, func(records int)) {
	t.Helper()
	privileged.Need(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		t.Fatal(err)
	}
	r := &RareRing{reader: reader}
	t.Cleanup(func() { _ = r.Close() })
	return r, writer(t, m, size)
}

// writer returns a function that has a program write records of size bytes to a ring.
func writer(t *testing.T, m *ebpf.Map, size int) func(records int) {
	t.Helper()
	head := Head{Size: uint32(size), Kind: uint8(KindFork), Time: 1}
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&head)), unsafe.Sizeof(head)/8)
	var code asm.Instructions
	for i := range size / 8 {
		word := uint64(0)
		if i < len(words) {
			word = words[i]
		}
		code = append(code, asm.LoadImm(asm.R0, int64(word), asm.DWord), asm.StoreMem(asm.RFP, int16(8*i-size), asm.R0, asm.DWord))
	}
	code = append(
		code, asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(-size)), asm.Mov.Imm(asm.R3, int32(size)),
		asm.Mov.Imm(asm.R4, 0), asm.FnRingbufOutput.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return(),
	)
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, Instructions: code, License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return func(records int) {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 64), Repeat: uint32(records)}); err != nil {
			t.Fatal(err)
		}
	}
}
