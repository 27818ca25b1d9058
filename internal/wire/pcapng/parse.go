package pcapng

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// maxInterfaces of a section bounds the reader's memory: each stays in memory, where it takes ten times its size in the
// file.
const maxInterfaces = 1 << 16

// parser interprets the blocks of one stream in their order.
type parser struct {
	order  binary.ByteOrder
	ifaces []*Interface
	packet Packet
}

// Parser interprets blocks that were already cut, for example by SplitBlocks.
type Parser struct{ parser }

// Parse returns what a whole block means, valid until the next call; nil for a type that is skipped. Blocks must be in the byte order of
// the writer. Errors wrap ErrFormat.
func (p *Parser) Parse(block []byte) (Block, error) {
	if size := len(block); size < blockOverhead || order.Uint32(block[4:]) != uint32(size) || order.Uint32(block[size-4:]) != uint32(size) {
		return nil, fmt.Errorf("%w: block of %d bytes with another length in it", ErrFormat, size)
	}
	p.order = order
	return p.parse(order.Uint32(block), block[8:len(block)-4])
}

// parse interprets a block; nil without an error means a type that is skipped.
func (r *parser) parse(typ uint32, body []byte) (Block, error) {
	switch typ {
	case typeSection:
		return r.parseSection(body)
	case typeInterface:
		return r.parseInterface(body)
	case typeNames:
		return r.parseNames(body)
	case typePacket:
		return r.parsePacket(body)
	case typeStatistics:
		return r.parseStatistics(body)
	default:
		return nil, nil
	}
}

func (r *parser) parseSection(body []byte) (Block, error) {
	const fixed = 16
	if len(body) < fixed {
		return nil, fmt.Errorf("%w: section header of %d bytes", ErrFormat, len(body))
	}
	if major := r.order.Uint16(body[4:]); major != versionMajor {
		return nil, fmt.Errorf("%w: format version %d, known is %d", ErrFormat, major, versionMajor)
	}
	r.ifaces = nil
	s := &Section{}
	err := r.options(body[fixed:], func(code uint16, v []byte) error {
		switch code {
		case optComment:
			s.Comments = append(s.Comments, string(v))
		case optHardware:
			s.Hardware = string(v)
		case optOS:
			s.OS = string(v)
		case optApplication:
			s.Application = string(v)
		}
		return nil
	})
	return s, err
}

func (r *parser) parseInterface(body []byte) (Block, error) {
	const fixed = 8
	if len(body) < fixed {
		return nil, fmt.Errorf("%w: interface description of %d bytes", ErrFormat, len(body))
	}
	if len(r.ifaces) >= maxInterfaces {
		return nil, fmt.Errorf("%w: more than %d interfaces in a section", ErrFormat, maxInterfaces)
	}
	i := &Interface{LinkType: LinkType(r.order.Uint16(body)), SnapLen: r.order.Uint32(body[4:])}
	i.clock.perSecond = 1e6 // without if_tsresol
	err := r.options(body[fixed:], func(code uint16, v []byte) (err error) {
		switch code {
		case optComment:
			i.Comments = append(i.Comments, string(v))
		case optIfName:
			i.Name = string(v)
		case optIfDescription:
			i.Description = string(v)
		case optIfFilter:
			if len(v) > 0 && v[0] == 0 {
				i.Filter = string(v[1:])
			}
		case optIfTSResol:
			i.clock.perSecond, err = resolution(v)
		case optIfTSOffset:
			if len(v) != 8 {
				return fmt.Errorf("%w: if_tsoffset of %d bytes", ErrFormat, len(v))
			}
			i.clock.offset = int64(r.order.Uint64(v))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.ifaces = append(r.ifaces, i)
	return i, nil
}

func (r *parser) parsePacket(body []byte) (Block, error) {
	const fixed = PacketHeaderLen - 8
	if len(body) < fixed {
		return nil, fmt.Errorf("%w: packet block of %d bytes", ErrFormat, len(body))
	}
	p := &r.packet
	*p = Packet{Interface: r.order.Uint32(body), Length: r.order.Uint32(body[16:])}
	i, err := r.iface(p.Interface)
	if err != nil {
		return nil, err
	}
	p.Time = i.clock.nanoseconds(r.time(body[4:]))
	capLen := uint64(r.order.Uint32(body[12:]))
	rest := body[fixed:]
	if capLen > uint64(len(rest)) {
		return nil, fmt.Errorf("%w: packet of %d bytes in a block that has room for %d", ErrFormat, capLen, len(rest))
	}
	p.Data = rest[:capLen:capLen]
	// The body's length is a multiple of four, so the padding is within it.
	err = r.options(rest[capLen+uint64(pad(int(capLen))):], func(code uint16, v []byte) error {
		switch {
		case code == optComment:
			p.Comments = append(p.Comments, string(v))
		case code == optPacketFlags && len(v) == 4:
			p.Flags = Flags(r.order.Uint32(v))
		case code == optCustomBinary && p.Process == nil:
			p.Process = r.parseProcess(v)
		}
		return nil
	})
	return p, err
}

func (r *parser) parseStatistics(body []byte) (Block, error) {
	const fixed = 12
	if len(body) < fixed {
		return nil, fmt.Errorf("%w: statistics block of %d bytes", ErrFormat, len(body))
	}
	s := &Statistics{Interface: r.order.Uint32(body)}
	i, err := r.iface(s.Interface)
	if err != nil {
		return nil, err
	}
	s.Time = i.clock.nanoseconds(r.time(body[4:]))
	err = r.options(body[fixed:], func(code uint16, v []byte) error {
		if code == optComment {
			s.Comments = append(s.Comments, string(v))
			return nil
		}
		if len(v) != 8 {
			return nil // not a counter or a time
		}
		switch code {
		case optStatStart:
			s.Start = i.clock.nanoseconds(r.time(v))
		case optStatEnd:
			s.End = i.clock.nanoseconds(r.time(v))
		}
		if field := s.counter(code); field != nil {
			n := r.order.Uint64(v)
			*field = &n
		}
		return nil
	})
	return s, err
}

func (s *Statistics) counter(code uint16) **uint64 {
	switch code {
	case optStatReceived:
		return &s.Received
	case optStatIfDrop:
		return &s.IfDrop
	case optStatFilterAccept:
		return &s.FilterAccept
	case optStatOSDrop:
		return &s.OSDrop
	case optStatDelivered:
		return &s.Delivered
	default:
		return nil
	}
}

func (r *parser) iface(n uint32) (*Interface, error) {
	if uint64(n) >= uint64(len(r.ifaces)) {
		return nil, fmt.Errorf("%w: interface %d, of %d described so far", ErrFormat, n, len(r.ifaces))
	}
	return r.ifaces[n], nil
}

func (r *parser) time(b []byte) uint64 {
	return uint64(r.order.Uint32(b))<<32 | uint64(r.order.Uint32(b[4:]))
}

// options calls each for every option up to the end of the list. Its end mark may be missing.
func (r *parser) options(b []byte, each func(code uint16, v []byte) error) error {
	for len(b) >= 4 {
		code, n := r.order.Uint16(b), int(r.order.Uint16(b[2:]))
		b = b[4:]
		if code == optEnd {
			return nil
		}
		if n > len(b) {
			return fmt.Errorf("%w: option %d of %d bytes, %d are left in its block", ErrFormat, code, n, len(b))
		}
		if err := each(code, b[:n]); err != nil {
			return err
		}
		b = b[min(len(b), n+pad(n)):]
	}
	return nil
}

// clock converts the time stamps of one interface to nanoseconds since 1970.
type clock struct {
	perSecond uint64
	offset    int64 // seconds to add
}

// resolution reads if_tsresol: a negative power of ten, or of two if the highest bit is set.
func resolution(v []byte) (uint64, error) {
	if len(v) != 1 {
		return 0, fmt.Errorf("%w: if_tsresol of %d bytes", ErrFormat, len(v))
	}
	exp := v[0] & 0x7f
	if v[0]&0x80 != 0 {
		if exp > 63 {
			return 0, fmt.Errorf("%w: if_tsresol 2^-%d", ErrFormat, exp)
		}
		return 1 << exp, nil
	}
	if exp > 19 {
		return 0, fmt.Errorf("%w: if_tsresol 10^-%d", ErrFormat, exp)
	}
	n := uint64(1)
	for range exp {
		n *= 10
	}
	return n, nil
}

func (c clock) nanoseconds(t uint64) uint64 {
	const perSecond = 1e9
	if c.perSecond == perSecond {
		return t + uint64(c.offset)*perSecond
	}
	sec, frac := t/c.perSecond, t%c.perSecond
	hi, lo := bits.Mul64(frac, perSecond)
	ns, _ := bits.Div64(hi, lo, c.perSecond) // frac < c.perSecond, so hi is less, too
	return (sec+uint64(c.offset))*perSecond + ns
}
