package kerneltest

import (
	"bytes"
	"encoding/binary"
	"unsafe"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// Entry is an entry of an io_uring (struct io_uring_sqe).
type Entry struct {
	Opcode, Flags      uint8
	IOPriority         uint16
	FD                 int32
	Off, Addr          uint64
	Len, OpFlags       uint32
	UserData           uint64
	Buffer, Personal   uint16
	FileIndex          uint32
	Address3, Padding4 uint64
}

// Submission returns the record of an operation's submission to an io_uring, with a socket's address and up to two strings.
func Submission(request uint64, e *Entry, address []byte, texts ...string) []byte {
	var entry bytes.Buffer
	_ = binary.Write(&entry, binary.NativeEndian, e)
	u := kernel.Uring{Request: request, Ring: 1, UserData: e.UserData, Flags: uint32(e.Flags), Known: 1}
	call := Call(uint16(e.Opcode), nil, texts...)
	padded := append(bytes.Clone(address), make([]byte, (8-len(address)%8)%8)...)
	rest := append(append(entry.Bytes(), padded...), call[kernel.HeadLen:]...)
	b := uring(&u, call[:kernel.HeadLen], kernel.KindUringSubmit, rest)
	Head(b).Address = uint16(len(address))
	return b
}

// Result returns the record of a result of an operation. A request of zero means that the result has none.
func Result(request uint64, opcode uint8, userData uint64, result int64, flags uint32) []byte {
	u := kernel.Uring{Request: request, Ring: 1, UserData: userData, Flags: flags}
	b := uring(&u, Call(uint16(opcode), nil), kernel.KindUringEnd, nil)
	Head(b).Ret = result
	return b
}

// uring puts an operation between a record's head and its rest.
func uring(u *kernel.Uring, head []byte, kind kernel.Kind, rest []byte) []byte {
	b := append(bytes.Clone(head), unsafe.Slice((*byte)(unsafe.Pointer(u)), unsafe.Sizeof(*u))...)
	b = append(b, rest...)
	Head(b).Kind, Head(b).Size = uint8(kind), uint32(len(b))
	return b
}
