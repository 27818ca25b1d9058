package carrier

import (
	"bytes"
	"errors"
	"math"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/httpmatch"
)

const (
	// maxHead in bytes of a request's or a response's head.
	maxHead = 64 << 10
	// maxFields of a request's head. Each takes 32 bytes in memory, and four on the wire are enough.
	maxFields = 256
	// keptFields is the room that a connection keeps for the fields of its next request.
	keptFields = 32
	// maxMethod is longer than any method in use. More bytes without a space are no HTTP.
	maxMethod = 32
	// probeAgent begins the User-Agent of the kubelet's probes, and hookAgent the one of its hooks postStart and preStop.
	probeAgent, hookAgent = "kube-probe/", "kube-lifecycle/"
)

var (
	// errNotHTTP: the bytes do not begin like a request of HTTP/1.
	errNotHTTP = errors.New("no request line of HTTP/1")
	// errAmbiguous: two parsers could disagree about where the message ends.
	errAmbiguous = errors.New("ambiguous framing")
)

// headScanner finds the end of a head while its bytes arrive.
type headScanner struct {
	line int // start of the line that is not complete
	seen int // bytes that have been searched
}

// find returns the length of the head at the start of b with its empty line, or 0 if it is not complete. Each call sees the
// bytes of the one before, and more. It checks the request line and the line ends; parse checks the fields.
func (s *headScanner) find(b []byte) (int, error) {
	for {
		i := bytes.IndexByte(b[s.seen:], '\n')
		if i < 0 {
			s.seen = len(b)
			return 0, s.incomplete(b)
		}
		end := s.seen + i
		if end == s.line || b[end-1] != '\r' {
			return 0, s.broken()
		}
		line := b[s.line : end-1]
		switch {
		case s.line == 0:
			if _, _, _, ok := splitRequestLine(line); !ok {
				return 0, errNotHTTP
			}
		case len(line) == 0:
			return end + 1, nil
		}
		s.line, s.seen = end+1, end+1
	}
}

// incomplete refuses bytes that no more bytes can make a head.
func (s *headScanner) incomplete(b []byte) error {
	if len(b) >= maxHead {
		return s.broken()
	}
	if s.line > 0 {
		return nil
	}
	method, _, found := bytes.Cut(b, []byte{' '})
	if len(method) > maxMethod || !all(method, tokenByte) || found && len(method) == 0 {
		return errNotHTTP
	}
	return nil
}

func (s *headScanner) broken() error {
	if s.line == 0 {
		return errNotHTTP
	}
	return errAmbiguous
}

// splitRequestLine returns the parts of "METHOD target HTTP/1.x", with one space between them.
func splitRequestLine[T string | []byte](line T) (method, target T, minor byte, ok bool) {
	const version = " HTTP/1."
	n := len(line) - len(version) - 1
	if n < 3 || string(line[n:n+len(version)]) != version {
		return method, target, 0, false
	}
	minor = line[len(line)-1]
	space := 0
	for space < n && line[space] != ' ' {
		space++
	}
	if space == 0 || space > maxMethod || space+1 >= n || minor != '0' && minor != '1' {
		return method, target, 0, false
	}
	method, target = line[:space], line[space+1:n]
	return method, target, minor - '0', all(method, tokenByte) && all(target, targetByte)
}

// head is what the carrier knows about a request. Its texts are parts of one string.
type head struct {
	httpmatch.Request
	body body
	// last: the peer sends no further request on this connection.
	last bool
	// expects a 100 before it sends its body.
	expects bool
	upgrade bool
	// http2: it asks for an upgrade to HTTP/2, after which the connection carries further requests.
	http2 bool
	// probe or hook of the kubelet.
	probe bool
}

// parse reads a head that find has found. It reuses h's memory.
func (h *head) parse(text string) error {
	line, rest, _ := strings.Cut(text, "\r\n")
	method, target, minor, ok := splitRequestLine(line)
	if !ok {
		return errNotHTTP
	}
	*h = head{Request: httpmatch.Request{Method: method, Path: pathOf(method, target), Fields: h.Fields[:0]}}
	f := framing{length: -1}
	if !h.parseFields(rest, &f) || f.ambiguous(minor) {
		return errAmbiguous
	}
	h.last = f.last(minor)
	switch {
	case f.chunked:
		h.body = body{kind: chunked}
	case f.length > 0:
		h.body = body{kind: sized, left: f.length}
	}
	return nil
}

// forget drops the texts that the rest of the exchange does not need. It copies the others: they are parts of the whole head.
func (h *head) forget() {
	clear(h.Fields)
	if cap(h.Fields) > keptFields {
		h.Fields = nil
	}
	h.Method, h.Path = strings.Clone(h.Method), strings.Clone(h.Path[:min(len(h.Path), maxPath)])
}

// parseFields reads the lines after the first. It returns false if one is no field.
func (h *head) parseFields(lines string, f *framing) bool {
	for {
		line, rest, _ := strings.Cut(lines, "\r\n")
		if line == "" {
			return true
		}
		lines = rest
		name, value, found := strings.Cut(line, ":")
		if !found || name == "" || len(h.Fields) == maxFields || !all(name, tokenByte) || !all(value, valueByte) {
			return false
		}
		value = trim(value)
		h.Fields = append(h.Fields, httpmatch.Field{Name: name, Value: value})
		h.note(name, value, f)
	}
}

// note keeps what the carrier needs of a field.
func (h *head) note(name, value string, f *framing) {
	switch len(name) {
	case len("upgrade"):
		if strings.EqualFold(name, "upgrade") {
			h.upgrade = true
			for protocol := range strings.SplitSeq(value, ",") {
				h.http2 = h.http2 || equalFold(trim(protocol), "h2c")
			}
		}
	case len("expect"):
		h.expects = h.expects || strings.EqualFold(name, "expect")
	case len("user-agent"): // "connection" has the same length
		if strings.EqualFold(name, "user-agent") && ofKubelet(value) {
			h.probe = true
		}
	}
	f.note(name, value)
}

// ofKubelet reports whether a User-Agent is the kubelet's. Its probes and hooks are meant for the app. If another process answers a
// preStop hook, the app never learns that it is to finish its work.
func ofKubelet(agent string) bool {
	return strings.HasPrefix(agent, probeAgent) || strings.HasPrefix(agent, hookAgent)
}

// pathOf returns the path of a target as it was sent, without the query.
func pathOf(method, target string) string {
	if method == "CONNECT" {
		return target
	}
	if target[0] != '/' { // "http://host/path", or "*"
		if _, after, ok := strings.Cut(target, "://"); ok {
			slash := strings.IndexAny(after, "/?")
			if slash < 0 || after[slash] == '?' {
				return "/"
			}
			target = after[slash:]
		}
	}
	path, _, _ := strings.Cut(target, "?")
	return path
}

// framing collects the fields that say where a message ends.
type framing struct {
	length    int64 // -1 without Content-Length
	encodings int   // fields Transfer-Encoding
	chunked   bool
	close     bool
	keepAlive bool
	// bad: a Content-Length that is no number, or more than one.
	bad bool
}

// ambiguous reports whether two parsers could disagree about where the body ends.
func (f *framing) ambiguous(minor byte) bool {
	return f.bad || f.encodings > 1 || f.encodings == 1 && (!f.chunked || f.length >= 0 || minor == 0)
}

// last reports whether the connection ends after the message.
func (f *framing) last(minor byte) bool { return f.close || minor == 0 && !f.keepAlive }

func (f *framing) note(name, value string) {
	switch len(name) {
	case len("content-length"):
		if strings.EqualFold(name, "content-length") {
			n, ok := parseLength(value)
			f.bad = f.bad || !ok || f.length >= 0
			f.length = n
		}
	case len("transfer-encoding"):
		if strings.EqualFold(name, "transfer-encoding") {
			f.encodings++
			f.chunked = equalFold(value, "chunked")
		}
	case len("connection"):
		if strings.EqualFold(name, "connection") {
			for option := range strings.SplitSeq(value, ",") {
				f.close = f.close || equalFold(trim(option), "close")
				f.keepAlive = f.keepAlive || equalFold(trim(option), "keep-alive")
			}
		}
	}
}

// equalFold compares with a word in ASCII. strings.EqualFold alone also takes the Kelvin sign for a k, and U+017F for an s. Both are longer.
func equalFold(s, word string) bool { return len(s) == len(word) && strings.EqualFold(s, word) }

// parseLength reads the digits of a Content-Length. Signs, blanks and lists are refused.
func parseLength(s string) (int64, bool) {
	if s == "" || len(s) > 18 {
		return math.MaxInt64, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return math.MaxInt64, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}
