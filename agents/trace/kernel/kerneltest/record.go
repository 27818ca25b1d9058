// Package kerneltest makes records for tests, as the BPF programs write them.
package kerneltest

import (
	"bytes"
	"unsafe"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Call returns the record of a system call with arguments and up to two strings.
func Call(number uint16, args []uint64, texts ...string) []byte {
	r := kernel.Head{Call: number, Kind: uint8(kernel.KindCall), Numbers: uint8(len(args))}
	var rest []byte
	for _, n := range args {
		rest = append(rest, unsafe.Slice((*byte)(unsafe.Pointer(&n)), 8)...)
	}
	for i, s := range texts {
		b := append([]byte(s), 0)
		if i == 0 {
			r.First = uint16(len(b))
		} else {
			r.Second = uint16(len(b))
		}
		rest = append(rest, b...)
		rest = append(rest, make([]byte, (8-len(b)%8)%8)...)
	}
	r.Size = uint32(kernel.HeadLen + len(rest))
	return append(bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), kernel.HeadLen)), rest...)
}

// Head returns the head of a record of Call, so that tests can change it.
func Head(record []byte) *kernel.Head { return (*kernel.Head)(unsafe.Pointer(&record[0])) }
