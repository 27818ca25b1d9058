package packetview

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Limits of what is kept of one direction of a connection.
const (
	maxHead      = 64 << 10
	maxHeld      = 32 // segments that wait for an earlier one
	maxChunkLine = 1 << 10
)

// phase is where a stream is within a message.
type phase uint8

const (
	// searching for the beginning of a message, which is at the beginning of a segment.
	searching phase = iota
	inHead
	inBody
	inChunkSize
	inChunk
	inTrailer
	inUnbounded
)

// messages receives the messages of a stream.
type messages interface {
	// begin is called with each head. It returns how the body is framed.
	begin(h head, at uint64) (framing, int64)
	// end is called at the last byte of each message.
	end(at uint64)
	// keep is called when the stream keeps delta bytes more in memory. It reports whether there is room for them.
	keep(delta int) bool
}

// stream finds the messages of HTTP/1 in one direction of a connection. The zero value is ready to use.
type stream struct {
	next  uint32 // sequence number that comes next
	known bool
	held  []heldSegment

	phase phase
	text  []byte // of a head, or a line of a chunked body
	left  int64  // bytes of a body or a chunk
	kept  int    // bytes in text and held
}

type heldSegment struct {
	seq     uint32
	payload []byte
	length  int
}

// add reads a segment. Segments that come early wait for those before them. If these were not captured, the stream
// searches for the next message.
func (t *stream) add(s *segment, to messages) {
	if s.has(flagSYN) {
		t.drop(to)
		t.next, t.known = s.seq+1, true
	}
	if !t.known {
		t.next, t.known = s.seq, true
	}
	if s.length > 0 && !s.has(flagSYN) {
		t.place(s.seq, s.payload, s.length, s.at, to)
	}
	if s.has(flagFIN|flagRST) && t.phase == inUnbounded {
		t.phase = searching
		to.end(s.at)
	}
	if s.has(flagRST) {
		t.drop(to)
	}
	kept := len(t.text)
	for _, h := range t.held {
		kept += len(h.payload)
	}
	delta := kept - t.kept
	t.kept = kept
	if !to.keep(delta) {
		t.drop(to)
	}
}

// drop forgets what was kept, and searches for the next message.
func (t *stream) drop(to messages) {
	to.keep(-t.kept)
	*t = stream{next: t.next, known: t.known}
}

func (t *stream) place(seq uint32, payload []byte, length int, at uint64, to messages) {
	if before(t.next, seq) {
		t.held = append(t.held, heldSegment{seq, bytes.Clone(payload), length})
		if t.phase == searching || len(t.held) > maxHeld {
			t.skipGap(at, to)
		}
		return
	}
	t.take(heldSegment{seq, payload, length}, at, to)
	t.release(at, to)
}

// release reads the segments that waited, as long as no other is missing before them.
func (t *stream) release(at uint64, to messages) {
	for i := 0; i < len(t.held); i++ {
		if h := t.held[i]; !before(t.next, h.seq) {
			t.held = slices.Delete(t.held, i, i+1)
			t.take(h, at, to)
			i = -1
		}
	}
}

// skipGap goes on behind bytes that were not captured.
func (t *stream) skipGap(at uint64, to messages) {
	first := t.held[0].seq
	for _, h := range t.held {
		if before(h.seq, first) {
			first = h.seq
		}
	}
	gap := int(first - t.next)
	t.next = first
	t.read(nil, gap, at, to)
	t.release(at, to)
}

// take reads a segment that does not begin behind next.
func (t *stream) take(h heldSegment, at uint64, to messages) {
	known := int(t.next - h.seq)
	if known >= h.length {
		return
	}
	t.next = h.seq + uint32(h.length)
	missing := h.length - max(known, len(h.payload))
	t.read(h.payload[min(known, len(h.payload)):], missing, at, to)
}

// read reads bytes in order, and then missing bytes that were not captured.
func (t *stream) read(b []byte, missing int, at uint64, to messages) {
	if t.phase == searching && !beginsMessage(b) {
		return
	}
	if t.phase == searching {
		t.phase = inHead
	}
	for len(b) > 0 && t.phase != searching {
		b = b[t.step(b, at, to):]
	}
	if missing == 0 || t.phase == searching || t.phase == inUnbounded {
		return
	}
	if t.phase != inBody && t.phase != inChunk || t.left < int64(missing) {
		t.phase, t.text = searching, nil
		return
	}
	t.left -= int64(missing)
	t.bodyRead(at, to)
}

// step reads a part of b and returns its length.
func (t *stream) step(b []byte, at uint64, to messages) int {
	switch t.phase {
	case inHead:
		return t.readHead(b, at, to)
	case inBody, inChunk:
		n := min(int64(len(b)), t.left)
		t.left -= n
		t.bodyRead(at, to)
		return int(n)
	case inChunkSize, inTrailer:
		return t.readLine(b, at, to)
	default:
		return len(b)
	}
}

func (t *stream) readHead(b []byte, at uint64, to messages) int {
	if len(t.text) == 0 && (b[0] == '\r' || b[0] == '\n') { // RFC 9112, section 2.2
		return 1
	}
	old := len(t.text)
	t.text = append(t.text, b[:min(len(b), maxHead-old)]...)
	end := bytes.Index(t.text[max(0, old-3):], []byte("\r\n\r\n"))
	if end < 0 {
		if len(t.text) >= maxHead {
			t.phase, t.text = searching, nil
		}
		return len(b)
	}
	end += max(0, old-3) + 4
	h, ok := parseHead(t.text[:end])
	t.text = nil
	if !ok {
		t.phase = searching
		return len(b)
	}
	framing, size := to.begin(h, at)
	t.left = size
	switch framing {
	case noBody:
		t.phase = inHead
		to.end(at)
	case sizedBody:
		t.phase = inBody
	case chunkedBody:
		t.phase = inChunkSize
	case untilClose:
		t.phase = inUnbounded
	case notHTTP:
		t.phase = searching
		to.end(at)
		return len(b)
	}
	return end - old
}

// bodyRead goes on when a body or a chunk has been read.
func (t *stream) bodyRead(at uint64, to messages) {
	switch {
	case t.left > 0:
	case t.phase == inChunk:
		t.phase = inChunkSize
	default:
		t.phase = inHead
		to.end(at)
	}
}

// readLine reads a line of a chunked body: the size of a chunk, or a trailer.
func (t *stream) readLine(b []byte, at uint64, to messages) int {
	n := bytes.IndexByte(b, '\n') + 1
	whole := n > 0
	if !whole {
		n = len(b)
	}
	if len(t.text)+n > maxChunkLine {
		t.phase, t.text = searching, nil
		return len(b)
	}
	t.text = append(t.text, b[:n]...)
	if !whole {
		return n
	}
	line := strings.TrimRight(string(t.text), "\r\n")
	t.text = t.text[:0]
	if t.phase == inTrailer {
		if line == "" {
			t.phase = inHead
			to.end(at)
		}
		return n
	}
	text, _, _ := strings.Cut(line, ";")
	size, err := strconv.ParseInt(strings.TrimSpace(text), 16, 63)
	switch {
	case err != nil || size < 0:
		t.phase = searching
		return len(b)
	case size == 0:
		t.phase = inTrailer
	default:
		t.phase, t.left = inChunk, size+2 // and the end of the line
	}
	return n
}
