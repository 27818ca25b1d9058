package tunnel

import (
	"encoding/binary"
	"errors"
	"net"

	"golang.org/x/net/http2"
)

// errLargeFrames: the other side's settings ask for larger frames than this package sends.
var errLargeFrames = errors.New("the peer asks for HTTP/2 frames that are too large")

// smallFrames is a connection whose reads fail when the other side's settings ask for frames larger than frameSize. HTTP/2's client
// follows such settings, and then holds up to 512 KiB for each stream that sends.
type smallFrames struct {
	net.Conn
	header   [9]byte // of the current frame
	inHeader int     // its bytes so far
	left     uint32  // bytes of the payload to come
	setting  [6]byte
	inValue  int // bytes of setting so far
}

// Read implements net.Conn.
func (s *smallFrames) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if !s.follow(b[:n]) {
		return 0, errLargeFrames
	}
	return n, err
}

// follow returns false if b has a setting that is refused.
func (s *smallFrames) follow(b []byte) bool {
	for len(b) > 0 {
		if s.inHeader < len(s.header) {
			n := copy(s.header[s.inHeader:], b)
			s.inHeader += n
			b = b[n:]
			if s.inHeader == len(s.header) {
				s.left, s.inValue = binary.BigEndian.Uint32(s.header[:])>>8, 0
			}
		} else {
			n := min(int(s.left), len(b))
			if !s.followPayload(b[:n]) {
				return false
			}
			s.left -= uint32(n)
			b = b[n:]
		}
		if s.inHeader == len(s.header) && s.left == 0 {
			s.inHeader = 0
		}
	}
	return true
}

func (s *smallFrames) followPayload(b []byte) bool {
	if http2.FrameType(s.header[3]) != http2.FrameSettings {
		return true
	}
	for _, c := range b {
		s.setting[s.inValue] = c
		s.inValue = (s.inValue + 1) % len(s.setting)
		if s.inValue == 0 && http2.SettingID(binary.BigEndian.Uint16(s.setting[:])) == http2.SettingMaxFrameSize &&
			binary.BigEndian.Uint32(s.setting[2:]) > frameSize {
			return false
		}
	}
	return true
}
