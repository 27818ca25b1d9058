package pcapng

import (
	"encoding/binary"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// All blocks are written little-endian: the format allows both orders, and every machine that Sonde runs on is
// little-endian, so nothing is swapped on the hot path.
var order = binary.LittleEndian

const (
	blockOverhead = 12 // type, total length, and total length again
	maxOptionLen  = 1<<16 - 1
)

// AppendSection appends a Section Header Block of unspecified section length, because the file is a stream.
func AppendSection(b []byte, s *Section) []byte {
	start := len(b)
	b = order.AppendUint32(b, typeSection)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint32(b, byteOrderMagic)
	b = order.AppendUint16(b, versionMajor)
	b = order.AppendUint16(b, versionMinor)
	b = order.AppendUint64(b, ^uint64(0))
	opts := len(b)
	b = appendComments(b, s.Comments)
	b = appendText(b, optHardware, s.Hardware)
	b = appendText(b, optOS, s.OS)
	b = appendText(b, optApplication, s.Application)
	return finish(b, start, opts)
}

// AppendInterface appends an Interface Description Block whose packets have nanosecond time stamps.
func AppendInterface(b []byte, i *Interface) []byte {
	start := len(b)
	b = order.AppendUint32(b, typeInterface)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint16(b, uint16(i.LinkType))
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, i.SnapLen)
	opts := len(b)
	b = appendComments(b, i.Comments)
	b = appendText(b, optIfName, i.Name)
	b = appendText(b, optIfDescription, i.Description)
	b = appendOption(b, optIfTSResol, []byte{9})
	if i.Filter != "" {
		// A leading zero marks a text in libpcap's language, not instructions (section 4.2).
		b = appendOption(b, optIfFilter, append([]byte{0}, cutText(i.Filter, maxOptionLen-1)...))
	}
	return finish(b, start, opts)
}

// AppendStatistics appends an Interface Statistics Block.
func AppendStatistics(b []byte, s *Statistics) []byte {
	start := len(b)
	b = order.AppendUint32(b, typeStatistics)
	b = order.AppendUint32(b, 0)
	b = order.AppendUint32(b, s.Interface)
	b = appendTime(b, s.Time)
	opts := len(b)
	b = appendComments(b, s.Comments)
	b = appendTimeOption(b, optStatStart, s.Start)
	b = appendTimeOption(b, optStatEnd, s.End)
	b = appendCounter(b, optStatReceived, s.Received)
	b = appendCounter(b, optStatIfDrop, s.IfDrop)
	b = appendCounter(b, optStatFilterAccept, s.FilterAccept)
	b = appendCounter(b, optStatOSDrop, s.OSDrop)
	b = appendCounter(b, optStatDelivered, s.Delivered)
	return finish(b, start, opts)
}

// finish closes the block that began at start and whose options began at opts: end of options, both lengths.
func finish(b []byte, start, opts int) []byte {
	if len(b) > opts {
		b = order.AppendUint32(b, optEnd)
	}
	total := uint32(len(b) - start + 4)
	order.PutUint32(b[start+4:], total)
	return order.AppendUint32(b, total)
}

// appendTime appends two 32-bit words, the high one first in both byte orders.
func appendTime(b []byte, t uint64) []byte {
	b = order.AppendUint32(b, uint32(t>>32))
	return order.AppendUint32(b, uint32(t))
}

func appendTimeOption(b []byte, code uint16, t uint64) []byte {
	if t == 0 {
		return b
	}
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, 8)
	return appendTime(b, t)
}

func appendCounter(b []byte, code uint16, v *uint64) []byte {
	if v == nil {
		return b
	}
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, 8)
	return order.AppendUint64(b, *v)
}

func appendComments(b []byte, comments []string) []byte {
	for _, c := range comments {
		b = appendText(b, optComment, c)
	}
	return b
}

func appendText(b []byte, code uint16, s string) []byte {
	if s == "" {
		return b
	}
	return appendOption(b, code, []byte(cutText(s, maxOptionLen)))
}

func appendOption(b []byte, code uint16, v []byte) []byte {
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	return append(b, make([]byte, pad(len(v)))...)
}

// cutText makes a text fit an option: valid UTF-8 of at most limit bytes, cut between two characters. It replaces zero bytes,
// which would end the text in C readers.
func cutText(s string, limit int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	return text.Truncate(s, limit)
}

// pad returns how many bytes to add to n for a multiple of four.
func pad(n int) int { return -n & 3 }
