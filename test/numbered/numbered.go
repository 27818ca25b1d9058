// Package numbered defines the payload of numbered packets. The sender and the tests that count the packets share it.
package numbered

import (
	"encoding/binary"
)

// magic begins each payload, so that no other traffic is mistaken for a numbered packet.
const magic = "SONDE-01"

// MinSize is the smallest payload in bytes.
const MinSize = len(magic) + 4 + 8

// Put writes run and seq into b, which holds at least MinSize bytes.
func Put(b []byte, run uint32, seq uint64) {
	copy(b, magic)
	binary.BigEndian.PutUint32(b[len(magic):], run)
	binary.BigEndian.PutUint64(b[len(magic)+4:], seq)
}

// Get reads the payload that Put wrote; ok is false for any other payload.
func Get(b []byte) (run uint32, seq uint64, ok bool) {
	if len(b) < MinSize || string(b[:len(magic)]) != magic {
		return 0, 0, false
	}
	return binary.BigEndian.Uint32(b[len(magic):]), binary.BigEndian.Uint64(b[len(magic)+4:]), true
}
