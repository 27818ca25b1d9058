package kernel_test

import (
	"bytes"
	"errors"
	"testing"
	"unsafe"

	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
)

func TestParse(t *testing.T) {
	var r kernel.Record
	if !r.Parse(kerneltest.Call(257, []uint64{1, 2, 3}, "/etc/passwd", "x")) {
		t.Fatal("malformed")
	}
	if r.Head.Call != 257 || r.Numbers != [6]uint64{1, 2, 3} || string(r.First) != "/etc/passwd" || string(r.Second) != "x" {
		t.Errorf("%+v, %v, %q, %q", r.Head, r.Numbers, r.First, r.Second)
	}
	whole := kerneltest.Call(257, []uint64{1}, "/etc/passwd")
	for n := range whole {
		if r.Parse(whole[:n]) {
			t.Errorf("%d of %d bytes are a record", n, len(whole))
		}
	}
}

func TestParseConnection(t *testing.T) {
	head := kernel.Head{Kind: uint8(kernel.KindConnection)}
	f := kernel.TCP{Sent: 7, LocalPort: 80}
	head.Size = uint32(kernel.HeadLen) + uint32(unsafe.Sizeof(f))
	whole := append(bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&head)), kernel.HeadLen)), unsafe.Slice((*byte)(unsafe.Pointer(&f)), unsafe.Sizeof(f))...)
	var r kernel.Record
	if !r.Parse(whole) || r.TCP == nil || r.TCP.Sent != 7 || r.TCP.LocalPort != 80 {
		t.Errorf("%+v", r.TCP)
	}
	for n := range whole {
		r = kernel.Record{}
		if r.Parse(whole[:n]) {
			t.Errorf("%d of %d bytes are a record", n, len(whole))
		}
	}
	head.Size = uint32(kernel.HeadLen)
	if r.Parse(unsafe.Slice((*byte)(unsafe.Pointer(&head)), kernel.HeadLen)) {
		t.Error("a head alone was accepted as a connection")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(kerneltest.Call(257, []uint64{1, 2, 3, 4, 5, 6}, "/etc/passwd", "b"))
	f.Add(kerneltest.Call(1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Records lie at multiples of 8 in the ring.
		aligned := make([]uint64, len(b)/8+1)
		mem := unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), len(aligned)*8)[:len(b)]
		copy(mem, b)
		var r kernel.Record
		if r.Parse(mem) && len(r.First)+len(r.Second) > len(mem) {
			t.Errorf("%d bytes of text in %d", len(r.First)+len(r.Second), len(mem))
		}
	})
}

// A malformed record ends reading, because it is unknown how many records follow it.
func TestDamagedRing(t *testing.T) {
	whole := kerneltest.Call(257, []uint64{1})
	r := kernel.Ring{Ring: ring.InMemory(4096, 4096, 0)}
	var rec kernel.Record
	if ok, err := r.Next(&rec); ok || err != nil {
		t.Errorf("an empty ring: %v, %v", ok, err)
	}
	r.Put(whole, 0)
	r.Put(make([]byte, len(whole)), 0)
	if ok, err := r.Next(&rec); !ok || err != nil {
		t.Fatalf("a whole record: %v, %v", ok, err)
	}
	r.Skip(uint64(rec.Head.Size))
	for range 2 {
		if ok, err := r.Next(&rec); ok || !errors.Is(err, kernel.ErrMalformed) || r.Left() != uint64(len(whole)) {
			t.Errorf("zeros instead of a record: %v, %v, %d bytes left", ok, err, r.Left())
		}
	}
}
