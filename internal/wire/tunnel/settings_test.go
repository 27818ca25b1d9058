package tunnel

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
)

// TestSmallFrames: settings that ask for larger frames end the connection, however their bytes are split. Others pass unchanged.
func TestSmallFrames(t *testing.T) {
	for name, test := range map[string]struct {
		size    uint32
		refused bool
	}{"as large as ours": {frameSize, false}, "larger": {frameSize + 1, true}} {
		t.Run(name, func(t *testing.T) {
			var sent bytes.Buffer
			f := http2.NewFramer(&sent, nil)
			large := http2.Setting{ID: http2.SettingMaxFrameSize, Val: frameSize + 1}
			payload := make([]byte, 6) // data that looks like the setting
			payload[1], payload[4] = byte(large.ID), 0xff
			write := errors.Join(f.WriteSettings(), f.WriteSettingsAck(), f.WriteData(1, false, payload), f.WriteSettings(
				http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: test.size},
			), f.WritePing(false, [8]byte{}))
			if write != nil {
				t.Fatal(write)
			}
			for split, from := range map[string]io.Reader{
				"whole": bytes.NewReader(sent.Bytes()), "bytes": iotest.OneByteReader(bytes.NewReader(sent.Bytes())), "halves": iotest.HalfReader(bytes.NewReader(sent.Bytes())),
			} {
				got, err := io.ReadAll(&smallFrames{Conn: readerConn{Reader: from}})
				switch {
				case test.refused && !errors.Is(err, errLargeFrames):
					t.Errorf("%s: %v, want %v", split, err, errLargeFrames)
				case !test.refused && (err != nil || !bytes.Equal(got, sent.Bytes())):
					t.Errorf("%s: %d of %d bytes, %v", split, len(got), sent.Len(), err)
				}
			}
		})
	}
}

// TestOtherKinds: a frame of a kind that HTTP/2's client does not know ends the connection. The kinds that a server sends pass.
func TestOtherKinds(t *testing.T) {
	for kind := range http2.FrameType(0x20) {
		var sent bytes.Buffer
		if err := http2.NewFramer(&sent, nil).WriteRawFrame(kind, 0, 0, make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
		_, err := io.ReadAll(&smallFrames{Conn: readerConn{Reader: &sent}})
		if refused, want := errors.Is(err, errKind), kind == http2.FramePriority || kind > http2.FrameContinuation; refused != want {
			t.Errorf("%s: error %v", kind, err)
		}
	}
}

type readerConn struct {
	net.Conn
	io.Reader
}

func (c readerConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }
