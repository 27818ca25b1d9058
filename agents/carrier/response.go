package carrier

import (
	"bytes"
	"strings"
)

// response follows one response to a request: interim heads, the final head, and the body.
type response struct {
	// toHead and toConnect: the request was a HEAD, or a CONNECT.
	toHead, toConnect bool

	status int // of the last head; 0 before it
	final  bool
	// tunnel: the connection changes its protocol after this head.
	tunnel bool
	// opaque: two parsers could disagree about where the response ends. crowded: there is no memory for the rest of its head.
	opaque, crowded bool
	// last: the server handles no further request on this connection.
	last bool
	body body
}

// done reports whether the response is complete.
func (r *response) done() bool { return r.final && !r.tunnel && !r.opaque && r.body.done() }

// readHead reads the head at the start of b, and returns its length, or 0 if it is not complete. A head that makes no sense is
// opaque.
func (r *response) readHead(b []byte) int {
	n := endOfResponseHead(b)
	if n == 0 {
		if r.crowded || len(b) >= maxHead || !bytes.HasPrefix(b, []byte("HTTP/1.")[:min(len(b), 7)]) {
			r.final, r.opaque = true, true
			return len(b)
		}
		return 0
	}
	r.parse(string(b[:n]))
	return n
}

// endOfResponseHead accepts line ends without CR, as clients do.
func endOfResponseHead(b []byte) int {
	at := 0
	for {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0
		}
		if at > 0 && (i == 0 || i == 1 && b[at] == '\r') {
			return at + i + 1
		}
		at += i + 1
	}
}

func (r *response) parse(text string) {
	line, rest, _ := strings.Cut(text, "\n")
	minor, status, ok := splitStatusLine(strings.TrimSuffix(line, "\r"))
	f := framing{length: -1}
	if ok {
		r.status = status
	}
	if !ok || !f.noteLines(rest) {
		r.final, r.opaque = true, true
		return
	}
	if status < 200 && status != 101 {
		// It has no body (RFC 9110, section 15.2), but some parsers read one if the head gives a length.
		r.opaque = f.length > 0 || f.encodings > 0 || f.bad
		r.final = r.opaque
		return
	}
	r.final = true
	r.last = f.last(minor)
	r.setBody(&f, minor)
}

// noteLines notes the lines of a response's head after the first. It returns false if one is no field: parsers disagree about white space
// before a colon, folded lines, bare CRs and NULs (RFC 9112, sections 2.2, 5.1 and 5.2). Values may have other odd bytes.
func (f *framing) noteLines(lines string) bool {
	for {
		line, rest, _ := strings.Cut(lines, "\n")
		line = strings.TrimSuffix(line, "\r")
		if line == "" {
			return true
		}
		lines = rest
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" || !all(name, tokenByte) || strings.ContainsAny(value, "\r\x00") {
			return false
		}
		f.note(name, trim(value))
	}
}

// setBody says how the body of a final response ends (RFC 9112, section 6.3).
func (r *response) setBody(f *framing, minor byte) {
	switch {
	case r.status == 101, r.toConnect && r.status < 300:
		r.tunnel = true
	case r.toHead, r.status == 204, r.status == 304:
	case f.ambiguous(minor):
		r.opaque = true
	case f.chunked:
		r.body = body{kind: chunked}
	case f.length >= 0:
		r.body = body{kind: sized, left: f.length}
	default:
		r.body = body{kind: untilClose}
	}
}

// splitStatusLine reads "HTTP/1.x 200 reason". A parser that takes a bare CR for the end of the line would find a field in the reason.
func splitStatusLine(line string) (minor byte, status int, ok bool) {
	const shortest = len("HTTP/1.1 200")
	if len(line) < shortest || strings.ContainsAny(line, "\r\x00") || line[:7] != "HTTP/1." || line[7] != '0' && line[7] != '1' || line[8] != ' ' || len(line) > shortest && line[shortest] != ' ' {
		return 0, 0, false
	}
	for _, c := range line[9:shortest] {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		status = status*10 + int(c-'0')
	}
	return line[7] - '0', status, status >= 100
}
