package packetview

import (
	"bytes"
	"strconv"
	"strings"
)

// framing says how the length of a body is found (RFC 9112, section 6.3).
type framing uint8

const (
	noBody framing = iota
	sizedBody
	chunkedBody
	untilClose
	// notHTTP follows an upgrade or a CONNECT: what comes is another protocol.
	notHTTP
)

// head is the start line of a message and what its headers say about the rest.
type head struct {
	request bool
	// method, host and path of a request. The path has no query.
	method, host, path string
	// status of a response.
	status  int
	framing framing
	size    int64 // of a sizedBody in bytes
}

// maxPart is the most characters of a host or a path that are kept.
const maxPart = 200

// methods begin a request (RFC 9110 and RFC 5789).
var methods = []string{"GET ", "POST ", "PUT ", "DELETE ", "HEAD ", "OPTIONS ", "PATCH ", "TRACE ", "CONNECT "}

// beginsMessage reports whether a segment looks like the beginning of a request or a response.
func beginsMessage(b []byte) bool {
	if bytes.HasPrefix(b, []byte("HTTP/1.")) {
		return true
	}
	for _, m := range methods {
		if bytes.HasPrefix(b, []byte(m)) {
			return true
		}
	}
	return false
}

// parseHead reads the head of a message up to and including its empty line.
func parseHead(b []byte) (head, bool) {
	line, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok {
		return head{}, false
	}
	h, ok := startLine(string(line))
	if !ok {
		return head{}, false
	}
	headers := parseHeaders(string(rest))
	h.host = shorten(headers["host"])
	h.setFraming(headers)
	return h, true
}

// parseHeaders returns the headers that this package reads, by their names in lower case. It takes any value: net/http refuses
// control characters, but the page shall show what a client sent.
func parseHeaders(text string) map[string]string {
	headers := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		switch name = strings.ToLower(name); name {
		case "host", "content-length", "transfer-encoding":
			headers[name] = strings.TrimSpace(value)
		}
	}
	return headers
}

func startLine(line string) (head, bool) {
	first, rest, ok := strings.Cut(line, " ")
	if !ok {
		return head{}, false
	}
	if strings.HasPrefix(first, "HTTP/1.") {
		code, _, _ := strings.Cut(rest, " ")
		status, err := strconv.Atoi(code)
		return head{status: status}, err == nil && status >= 100 && status <= 999
	}
	target, version, ok := cutLast(rest, " ")
	if !ok || !strings.HasPrefix(version, "HTTP/1.") {
		return head{}, false
	}
	path, _, _ := strings.Cut(target, "?")
	return head{request: true, method: shorten(first), path: shorten(path)}, true
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// shorten returns a copy, which does not keep the whole head in memory.
func shorten(s string) string { return strings.Clone(s[:min(len(s), maxPart)]) }

func (h *head) setFraming(headers map[string]string) {
	size, err := strconv.ParseInt(headers["content-length"], 10, 64)
	switch {
	case !h.request && (h.status < 200 || h.status == 204 || h.status == 304):
		h.framing = noBody
		if h.status == 101 {
			h.framing = notHTTP
		}
	case strings.HasSuffix(strings.ToLower(headers["transfer-encoding"]), "chunked"):
		h.framing = chunkedBody
	case err == nil && size > 0:
		h.framing, h.size = sizedBody, size
	case err == nil || h.request:
		h.framing = noBody
	default:
		h.framing = untilClose
	}
}

// answers adapts the framing of a response to the method of its request.
func (h *head) answers(method string) {
	switch {
	case method == "HEAD":
		h.framing = noBody
	case method == "CONNECT" && h.status/100 == 2:
		h.framing = notHTTP
	}
}
