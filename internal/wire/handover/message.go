package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// version of the protocol. Both sides come from the same image, so another version is an error.
const version = 1

// messageLen is the size of each message in bytes:
//
//	0  version
//	1  kind
//	2  port
//	4  id of a request and of its result
//	8  value
//	12 scope: the index of the interface of a link-local address
//	16 address; IPv4 is mapped to IPv6
//
// Numbers are big-endian, and what a kind does not use is zero.
const messageLen = 32

// kind of a message.
type kind uint8

const (
	// kindListeners carries the listening sockets, the first for IPv4 and a second one for IPv6 (from the opener).
	kindListeners kind = iota + 1
	// kindPing is answered by a kindPong with its id (from the opener).
	kindPing
	// kindResult answers a request. The value is zero or an errno (from the opener).
	kindResult
	// kindPong answers a ping (from the carrier).
	kindPong
	// kindSteer begins to steer a port if the value is 1, and ends it if the value is 0 (from the carrier).
	kindSteer
	// kindDial requests a connection to an address (from the carrier).
	kindDial
	// kindListens asks whether the app listens on a port. If it does not, the result is ECONNREFUSED (from the carrier).
	kindListens
)

// message is one message without its sockets.
type message struct {
	kind  kind
	port  uint16
	id    uint32
	value uint32
	scope uint32
	addr  netip.Addr // without a zone
}

var errMessage = errors.New("invalid message")

// appendTo appends the message's encoding.
func (m *message) appendTo(b []byte) []byte {
	b = append(b, version, byte(m.kind))
	b = binary.BigEndian.AppendUint16(b, m.port)
	b = binary.BigEndian.AppendUint32(b, m.id)
	b = binary.BigEndian.AppendUint32(b, m.value)
	b = binary.BigEndian.AppendUint32(b, m.scope)
	var addr [16]byte
	if m.addr.IsValid() {
		addr = m.addr.As16()
	}
	return append(b, addr[:]...)
}

// parse reads a message. It refuses anything that appendTo does not make.
func parse(b []byte) (message, error) {
	if len(b) != messageLen {
		return message{}, fmt.Errorf("%w: %d bytes, want %d", errMessage, len(b), messageLen)
	}
	if b[0] != version {
		return message{}, fmt.Errorf("%w: version %d, want %d", errMessage, b[0], version)
	}
	m := message{
		kind: kind(b[1]), port: binary.BigEndian.Uint16(b[2:]), id: binary.BigEndian.Uint32(b[4:]),
		value: binary.BigEndian.Uint32(b[8:]), scope: binary.BigEndian.Uint32(b[12:]),
	}
	rest := m
	rest.kind, rest.id = 0, 0
	hasAddr := [16]byte(b[16:]) != [16]byte{}
	switch m.kind {
	case kindListeners, kindPing, kindPong:
	case kindResult:
		rest.value = 0
	case kindSteer:
		rest.port = 0
		if m.value <= 1 {
			rest.value = 0
		}
	case kindListens:
		rest.port = 0
	case kindDial:
		rest.port, rest.scope = 0, 0
		m.addr, hasAddr = netip.AddrFrom16([16]byte(b[16:])).Unmap(), false
	default:
		return message{}, fmt.Errorf("%w: kind %d", errMessage, m.kind)
	}
	needsPort := slices.Contains([]kind{kindSteer, kindListens, kindDial}, m.kind)
	if rest != (message{}) || hasAddr || needsPort && m.port == 0 {
		return message{}, fmt.Errorf("%w of kind %d: a value is out of range", errMessage, m.kind)
	}
	return m, nil
}
