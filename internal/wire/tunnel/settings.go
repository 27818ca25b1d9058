package tunnel

import (
	"encoding/binary"
	"errors"
	"net"

	"golang.org/x/net/http2"
)

var (
	// errLargeFrames: the other side's settings ask for larger frames than this package sends.
	errLargeFrames = errors.New("the peer asks for HTTP/2 frames that are too large")
	// errKind: the other side sends a frame that the server of HTTP/2 does not send.
	errKind = errors.New("the peer sends an HTTP/2 frame of another kind")
)

// frames follows the frames of one direction of a connection.
type frames struct {
	header   [9]byte // of the current frame
	inHeader int     // its bytes so far
	left     uint32  // bytes of the payload to come
}

func (f *frames) kind() http2.FrameType { return http2.FrameType(f.header[3]) }

func (f *frames) has(flag http2.Flags) bool { return http2.Flags(f.header[4]).Has(flag) }

// follow gives payload the parts of each frame's payload. It returns false as soon as payload does.
func (f *frames) follow(b []byte, payload func(part []byte, last bool) bool) bool {
	for len(b) > 0 {
		if f.inHeader < len(f.header) {
			n := copy(f.header[f.inHeader:], b)
			f.inHeader += n
			b = b[n:]
			if f.inHeader < len(f.header) {
				return true
			}
			f.left = binary.BigEndian.Uint32(f.header[:]) >> 8
		}
		n := min(int(f.left), len(b))
		f.left -= uint32(n)
		if !payload(b[:n], f.left == 0) {
			return false
		}
		b = b[n:]
		if f.left == 0 {
			f.inHeader = 0
		}
	}
	return true
}

// smallFrames is a connection whose reads fail when the other side's settings ask for frames larger than frameSize. HTTP/2's client
// follows such settings, and then holds up to 512 KiB for each stream that sends. Reads also fail at a frame that the client would ignore,
// because it writes a line to standard error for each.
type smallFrames struct {
	net.Conn
	frames  frames
	setting [6]byte
	inValue int // bytes of setting so far
	refused error
}

// Read implements net.Conn.
func (s *smallFrames) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if !s.frames.follow(b[:n], s.payload) {
		return 0, s.refused
	}
	return n, err
}

func (s *smallFrames) payload(part []byte, last bool) bool {
	switch s.frames.kind() {
	case http2.FrameSettings:
	case http2.FrameData, http2.FrameHeaders, http2.FrameContinuation, http2.FrameRSTStream, http2.FramePushPromise, http2.FramePing,
		http2.FrameGoAway, http2.FrameWindowUpdate:
		return true
	default:
		s.refused = errKind
		return false
	}
	for _, c := range part {
		s.setting[s.inValue] = c
		s.inValue = (s.inValue + 1) % len(s.setting)
		if s.inValue == 0 && http2.SettingID(binary.BigEndian.Uint16(s.setting[:])) == http2.SettingMaxFrameSize &&
			binary.BigEndian.Uint32(s.setting[2:]) > frameSize {
			s.refused = errLargeFrames
			return false
		}
	}
	if last {
		s.inValue = 0
	}
	return true
}
