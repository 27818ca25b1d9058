package captureconfig

import "encoding/binary"

// HorizonLen is the length of HorizonFile in bytes: the time, and its complement, because a reader may see one write in parts.
const HorizonLen = 16

// AppendHorizon appends the content of HorizonFile: all packets up to a time, in nanoseconds since 1970, are in the file of a capture, or
// counted as lost.
func AppendHorizon(b []byte, at uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, at)
	return binary.LittleEndian.AppendUint64(b, ^at)
}

// ParseHorizon reads the content of HorizonFile. It returns zero, which is no time, for anything else.
func ParseHorizon(b []byte) uint64 {
	if len(b) != HorizonLen {
		return 0
	}
	at := binary.LittleEndian.Uint64(b)
	if binary.LittleEndian.Uint64(b[8:]) != ^at {
		return 0
	}
	return at
}
