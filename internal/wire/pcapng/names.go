package pcapng

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Record types of a Name Resolution Block (draft-ietf-opsawg-pcapng, section 4.5).
const (
	recordEnd  = 0
	recordIPv4 = 1
	recordIPv6 = 2
)

// maxNames is how many records a Name Resolution Block has at most, so that it stays below the largest block that readers accept.
const maxNames = 1 << 14

// maxNameLen is the longest name in bytes. Wireshark cuts longer ones.
const maxNameLen = 255

// Names is a Name Resolution Block: what Wireshark shows in place of addresses. It applies to the whole section.
type Names struct {
	Records  []Name
	Comments []string
}

// Name is the name of an IPv4 or IPv6 address.
type Name struct {
	Address netip.Addr
	Name    string
}

func (*Names) block() {}

// AppendNames appends as many Name Resolution Blocks as the names need, and none if there are none. It leaves out records without an
// address or a name. Only the first block has the comments.
func AppendNames(b []byte, n *Names) []byte {
	comments := n.Comments
	for records := n.Records; len(records) > 0; {
		some := records[:min(len(records), maxNames)]
		records = records[len(some):]
		b = appendNames(b, some, comments)
		comments = nil
	}
	return b
}

func appendNames(b []byte, records []Name, comments []string) []byte {
	start := len(b)
	b = order.AppendUint32(b, typeNames)
	b = order.AppendUint32(b, 0)
	for _, r := range records {
		b = appendName(b, r)
	}
	b = order.AppendUint16(b, recordEnd)
	b = order.AppendUint16(b, 0)
	opts := len(b)
	b = appendComments(b, comments)
	return finish(b, start, opts)
}

func appendName(b []byte, r Name) []byte {
	if !r.Address.IsValid() || r.Name == "" {
		return b
	}
	typ := uint16(recordIPv6)
	if r.Address.Is4() {
		typ = recordIPv4
	}
	value := append(r.Address.AsSlice(), cutText(r.Name, maxNameLen)...)
	return appendOption(b, typ, append(value, 0))
}

func (r *parser) parseNames(body []byte) (Block, error) {
	n := &Names{}
	for {
		if len(body) < 4 {
			return n, nil // the end record may be missing, like the end of options
		}
		typ, size := r.order.Uint16(body), int(r.order.Uint16(body[2:]))
		body = body[4:]
		if typ == recordEnd {
			break
		}
		if size > len(body) {
			return nil, fmt.Errorf("%w: name record of %d bytes, %d are left in its block", ErrFormat, size, len(body))
		}
		n.add(typ, body[:size])
		body = body[min(len(body), size+pad(size)):]
	}
	err := r.options(body, func(code uint16, v []byte) error {
		if code == optComment {
			n.Comments = append(n.Comments, string(v))
		}
		return nil
	})
	return n, err
}

// add adds the first name of a record. Records of other types, and those that are too short, are skipped.
func (n *Names) add(typ uint16, v []byte) {
	length := map[uint16]int{recordIPv4: 4, recordIPv6: 16}[typ]
	if length == 0 || len(v) <= length {
		return
	}
	address, _ := netip.AddrFromSlice(v[:length])
	name, _, _ := bytes.Cut(v[length:], []byte{0})
	if len(name) > 0 {
		n.Records = append(n.Records, Name{address, text.Truncate(strings.ToValidUTF8(string(name), "\uFFFD"), maxNameLen)})
	}
}
