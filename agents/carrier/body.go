package carrier

// bodyKind says how a body ends.
type bodyKind byte

const (
	empty bodyKind = iota
	sized
	chunked
	untilClose
)

// body follows the bytes of a message's body.
type body struct {
	kind   bodyKind
	left   int64 // of a sized body
	chunks chunkScanner
}

// done reports whether no more bytes belong to the body.
func (f *body) done() bool {
	switch f.kind {
	case empty:
		return true
	case sized:
		return f.left == 0
	case chunked:
		return f.chunks.state == chunkEnd
	default:
		return false
	}
}

// feed returns how many bytes of b belong to the body. The error is errAmbiguous if a chunk is malformed.
func (f *body) feed(b []byte) (int, error) {
	switch f.kind {
	case empty:
		return 0, nil
	case sized:
		n := int(min(f.left, int64(len(b))))
		f.left -= int64(n)
		return n, nil
	case chunked:
		return f.chunks.feed(b)
	default:
		return len(b), nil
	}
}

type chunkState byte

const (
	chunkSize      chunkState = iota // first digit of a size
	chunkDigits                      // more digits
	chunkExtension                   // after a semicolon
	chunkSizeLF
	chunkData
	chunkDataCR
	chunkDataLF
	trailerLine // first byte of a line
	trailerName
	trailerValue
	trailerLF
	trailerEndLF
	chunkEnd
)

const (
	// maxDigits of a size keep it below 1<<60.
	maxDigits = 15
	// maxChunkLine in bytes of one size with its extensions; trailers have maxHead.
	maxChunkLine = 1 << 10
)

// chunkScanner follows a body in chunks (RFC 9112, section 7.1). It accepts less than the standard: no white space around a
// size, no bare CR or LF.
type chunkScanner struct {
	state  chunkState
	digits int
	left   int64 // bytes of the chunk's data
	line   int   // bytes of the current line, or of all trailers
}

// feed returns how many bytes of b belong to the body. After an error the scanner must not be used.
func (s *chunkScanner) feed(b []byte) (int, error) {
	for i := 0; i < len(b); {
		switch s.state {
		case chunkData:
			n := int(min(s.left, int64(len(b)-i)))
			s.left -= int64(n)
			i += n
			if s.left == 0 {
				s.state = chunkDataCR
			}
			continue
		case chunkEnd:
			return i, nil
		default:
		}
		if !s.step(b[i]) {
			return i, errAmbiguous
		}
		i++
	}
	return len(b), nil
}

// step takes one byte that is not data.
func (s *chunkScanner) step(c byte) bool {
	s.line++
	switch s.state {
	case chunkSize, chunkDigits, chunkExtension, chunkSizeLF:
		return s.size(c) && s.line <= maxChunkLine
	case chunkDataCR:
		s.state = chunkDataLF
		return c == '\r'
	case chunkDataLF:
		s.state, s.digits, s.line = chunkSize, 0, 0
		return c == '\n'
	default:
		return s.trailer(c) && s.line <= maxHead
	}
}

func (s *chunkScanner) size(c byte) bool {
	switch {
	case s.state == chunkSizeLF:
		s.state = chunkData
		if s.left == 0 {
			s.state, s.line = trailerLine, 0
		}
		return c == '\n'
	case s.state == chunkExtension && c != '\r':
		return class[c]&valueByte != 0
	case class[c]&hexByte != 0:
		s.state = chunkDigits
		s.digits++
		s.left = s.left<<4 | int64(hexValue(c))
		return s.digits <= maxDigits
	case s.state == chunkSize: // no digit
		return false
	case c == ';':
		s.state = chunkExtension
		return true
	default:
		s.state = chunkSizeLF
		return c == '\r'
	}
}

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func (s *chunkScanner) trailer(c byte) bool {
	switch s.state {
	case trailerLine:
		s.state = trailerName
		if c == '\r' {
			s.state = trailerEndLF
			return true
		}
		return class[c]&tokenByte != 0
	case trailerName:
		if c == ':' {
			s.state = trailerValue
			return true
		}
		return class[c]&tokenByte != 0
	case trailerValue:
		if c == '\r' {
			s.state = trailerLF
			return true
		}
		return class[c]&valueByte != 0
	case trailerLF:
		s.state = trailerLine
		return c == '\n'
	default: // trailerEndLF
		s.state = chunkEnd
		return c == '\n'
	}
}
