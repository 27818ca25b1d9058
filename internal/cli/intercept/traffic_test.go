package intercept

import (
	"io"
	"strings"
	"testing"
)

// turns is a stream whose reads return one text each. An empty text stands for a response of the developer's process.
type turns struct{ texts []string }

func (t *turns) Read(b []byte) (int, error) {
	if len(t.texts) == 0 {
		return 0, io.EOF
	}
	n := copy(b, t.texts[0])
	t.texts = t.texts[1:]
	return n, nil
}

func (*turns) Write(b []byte) (int, error) { return len(b), nil }
func (*turns) CloseWrite() error           { return nil }
func (*turns) Close() error                { return nil }

// TestCountedRequests: a stream carries the requests of one connection, and counts them as the carrier does.
func TestCountedRequests(t *testing.T) {
	const response = ""
	const get = "GET / HTTP/1.1\r\nHost: web\r\n\r\n"
	for name, tc := range map[string]struct {
		texts []string
		want  int64
	}{
		"nothing":                     {nil, 0},
		"one request":                 {[]string{get, response}, 1},
		"not answered":                {[]string{get}, 1},
		"several on one connection":   {[]string{get, response, "my-method /x HTTP/1.0\n\n", response, response, get, response}, 3},
		"a body in parts":             {[]string{get, "part", "GET /in-a-body HTTP/1.1\r\n"}, 1},
		"a body after 100 Continue":   {[]string{get, response, "body with a blank", response, get}, 2},
		"a line longer than a read":   {[]string{get, response, "GET /" + strings.Repeat("x", longLine)}, 2},
		"a body without a line's end": {[]string{get, response, "{\"a\": 1}"}, 1},
		"WebSocket":                   {[]string{get, response, "\x81\x85 1234", response, "\x81\x85 1234"}, 1},
		"another protocol":            {[]string{"EHLO x\r\n", response, "MAIL FROM:<x>\r\n", response, "GET x"}, 1},
		"HTTP/2":                      {[]string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", response, "\x00\x00\x00\x04"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			traffic, bytes := &Traffic{}, 0
			c := &counted{Duplex: &turns{tc.texts}, traffic: traffic}
			for _, text := range tc.texts {
				n, err := c.Read(make([]byte, 2000))
				if err != nil {
					t.Fatal(err)
				}
				if bytes += n; text == response {
					_, _ = io.WriteString(c, "HTTP")
					bytes += len("HTTP")
				}
			}
			if got := traffic.requests.Load(); got != tc.want {
				t.Errorf("%d requests, want %d", got, tc.want)
			}
			if got := traffic.bytes.Load(); got != int64(bytes) {
				t.Errorf("%d bytes, want %d", got, bytes)
			}
		})
	}
}
