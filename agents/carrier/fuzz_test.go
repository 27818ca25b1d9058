package carrier

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzHead checks that the scanner finds the same head however its bytes arrive, and that net/http agrees about each head that it
// accepts: about the method, the path, and where the body ends.
func FuzzHead(f *testing.F) {
	for _, r := range matchRows() {
		f.Add([]byte(r.send), uint16(7))
	}
	for _, r := range ambiguousRows() {
		if len(r.send) < 1000 {
			f.Add([]byte(r.send), uint16(1))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var once, parts headScanner
		n, err := once.find(b)
		var again int
		var partsErr error
		for i := 0; i <= len(b) && again == 0 && partsErr == nil; i += 1 + int(cut)%97 {
			again, partsErr = parts.find(b[:i])
		}
		if again == 0 && partsErr == nil {
			again, partsErr = parts.find(b)
		}
		if n != again || (err == nil) != (partsErr == nil) {
			t.Fatalf("at once: %d, %v; in parts: %d, %v", n, err, again, partsErr)
		}
		if err != nil || n == 0 {
			return
		}
		var h head
		if h.parse(string(b[:n])) != nil {
			return
		}
		compareWithNetHTTP(t, &h, b[:n])
	})
}

// compareWithNetHTTP checks that net/http understands an accepted head in the same way, if it accepts it.
func compareWithNetHTTP(t *testing.T, h *head, text []byte) {
	t.Helper()
	in := bufio.NewReader(bytes.NewReader(text))
	r, err := http.ReadRequest(in)
	if err != nil {
		return // net/http also refuses other heads, for example those with an invalid URL
	}
	if rest := in.Buffered(); rest != 0 {
		t.Fatalf("net/http ends the head %d bytes earlier", rest)
	}
	if r.Method != h.Method {
		t.Errorf("method %q, net/http %q", h.Method, r.Method)
	}
	if strings.HasPrefix(r.RequestURI, "/") {
		if path, _, _ := strings.Cut(r.RequestURI, "?"); path != h.Path {
			t.Errorf("path %q, net/http %q", h.Path, path)
		}
	}
	switch h.body.kind {
	case chunked:
		if len(r.TransferEncoding) != 1 || r.TransferEncoding[0] != "chunked" {
			t.Errorf("chunked, net/http has %v", r.TransferEncoding)
		}
	default:
		if len(r.TransferEncoding) != 0 || r.ContentLength != h.body.left {
			t.Errorf("length %d, net/http %d with %v", h.body.left, r.ContentLength, r.TransferEncoding)
		}
	}
}

// FuzzChunks checks that a body in chunks ends at the same byte however it arrives, and that net/http agrees.
func FuzzChunks(f *testing.F) {
	for _, s := range []string{chunks, trailers, "0\r\n\r\n", "00000\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\nGET /", "fffffffffffffff\r\n", "1\r\nab\r\n"} {
		f.Add([]byte(s), uint16(1))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var once, parts chunkScanner
		n, err := once.feed(b)
		var again int
		var partsErr error
		for again < len(b) && partsErr == nil && parts.state != chunkEnd {
			var m int
			m, partsErr = parts.feed(b[again:min(len(b), again+1+int(cut)%97)])
			again += m
		}
		if n != again || !errors.Is(partsErr, err) || once.state != parts.state {
			t.Fatalf("at once: %d, %v; in parts: %d, %v", n, err, again, partsErr)
		}
		if once.state != chunkEnd {
			return
		}
		text := append([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), b...)
		in := bufio.NewReaderSize(bytes.NewReader(text), len(text)+16)
		r, err := http.ReadRequest(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // net/http bounds extensions and trailers more
		}
		if rest := in.Buffered(); rest != len(b)-n {
			t.Errorf("the body ends %d bytes before the end, for net/http %d", len(b)-n, rest)
		}
	})
}

// FuzzResponse checks that a response that the carrier takes for complete is complete for net/http as well.
func FuzzResponse(f *testing.F) {
	for _, r := range responseRows() {
		for _, a := range append(r.appSays, r.clientSays...) {
			if len(a.send) < 1000 {
				f.Add([]byte(a.send), false)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, head bool) {
		r := response{toHead: head}
		at := 0
		for !r.final {
			n := r.readHead(b[at:])
			if n == 0 {
				return
			}
			at += n
		}
		if r.opaque || r.tunnel {
			return
		}
		n, err := r.body.feed(b[at:])
		if err != nil || !r.done() {
			return
		}
		at += n
		in := bufio.NewReaderSize(bytes.NewReader(b), len(b)+16)
		request := &http.Request{Method: http.MethodGet}
		if head {
			request.Method = http.MethodHead
		}
		for {
			got, err := http.ReadResponse(in, request)
			if err != nil {
				return
			}
			_, err = io.Copy(io.Discard, got.Body)
			_ = got.Body.Close()
			if err != nil {
				return
			}
			if got.StatusCode >= 200 {
				break
			}
		}
		if rest := in.Buffered(); rest != len(b)-at {
			t.Errorf("the response ends %d bytes before the end, for net/http %d", len(b)-at, rest)
		}
	})
}
