package tunnel

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestStrict: a refusal with a body ends the connection, however its bytes are split. Other frames pass unchanged.
func TestStrict(t *testing.T) {
	type response struct {
		status  string
		last    bool
		more    string // of the header
		refused bool
	}
	for name, responses := range map[string][]response{
		"answers":               {{status: "200"}, {status: "204", last: true}, {status: "100"}, {status: "404", last: true}, {status: "200"}},
		"a refusal with a body": {{status: "404", last: true}, {status: "431", refused: true}},
		"one of the same kind":  {{status: "400", last: true}, {status: "400", last: true}, {status: "400", refused: true}},
		"a long header":         {{status: "200", more: strings.Repeat("x", 3<<10)}, {status: "500", more: strings.Repeat("y", 3<<10), refused: true}},
		"trailers":              {{status: "", last: true}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, split := range []int{1, 5, 1 << 20} {
				var sent, got, block bytes.Buffer
				encoder, f := hpack.NewEncoder(&block), http2.NewFramer(&sent, nil)
				s := newStrict(writerConn{Buffer: &got})
				want := 0
				for i, r := range responses {
					block.Reset()
					for _, field := range []hpack.HeaderField{{Name: ":status", Value: r.status}, {Name: "sonde-reason", Value: r.more}} {
						if field.Value == "" {
							continue
						}
						if err := encoder.WriteField(field); err != nil {
							t.Fatal(err)
						}
					}
					id, half := uint32(2*i+1), block.Len()/2
					err := errors.Join(
						f.WriteData(id, false, []byte{1, 4}), f.WriteSettings(), f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes()[:half], EndStream: r.last}),
						f.WriteContinuation(id, true, block.Bytes()[half:]),
					)
					if err != nil {
						t.Fatal(err)
					}
					for err = nil; sent.Len() > 0 && err == nil; {
						_, err = s.Write(sent.Next(split))
					}
					if r.refused != errors.Is(err, errBody) || !r.refused && err != nil {
						t.Fatalf("parts of %d bytes, response %d: %v", split, i, err)
					}
					if want += 9 + 2 + 9 + 9 + 9 + block.Len(); !r.refused && got.Len() != want {
						t.Errorf("parts of %d bytes, response %d: %d bytes pass, want %d", split, i, got.Len(), want)
					}
				}
			}
		})
	}
}

type writerConn struct {
	net.Conn
	*bytes.Buffer
}

func (c writerConn) Write(b []byte) (int, error) { return c.Buffer.Write(b) }
func (c writerConn) Read(b []byte) (int, error)  { return c.Buffer.Read(b) }
