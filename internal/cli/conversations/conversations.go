package conversations

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// maxConversations limits memory to about 200 bytes each. Packets of other conversations count as Other.
const maxConversations = 1 << 20

// Conversation is the traffic of one protocol between A and B.
type Conversation struct {
	// Protocol above IP ("TCP", "UDP", "ICMP"), or of a packet without IP ("ARP", "LLDP").
	Protocol string
	// A sent the first packet. Port 0 means that the protocol has no ports or that the port was not captured; an
	// invalid address means that there is none.
	A, B netip.AddrPort
	// AName and BName are the Pods ("namespace/name") that have these addresses, if the capture shows it.
	AName, BName string
	// AtoB and BtoA count each direction.
	AtoB, BtoA Count
	// First and Last packet.
	First, Last time.Time
	// Retransmissions are TCP segments whose bytes were all sent before, as far as the packets show it.
	Retransmissions int64
}

// tracked is a Conversation with what its retransmissions are counted by.
type tracked struct {
	Conversation

	// iface is where the first packet was captured. The same segment may be captured at other interfaces, too.
	iface      *pcapng.Interface
	atob, btoa sent
}

// sent says up to where one side of a TCP connection has sent.
type sent struct {
	end   uint32
	known bool
}

// again reports whether all of a segment was sent before.
func (s *sent) again(g segment) bool {
	if g.length == 0 {
		return false
	}
	end := g.first + g.length
	if s.known && int32(end-s.end) <= 0 { // sequence numbers wrap
		return true
	}
	s.end, s.known = end, true
	return false
}

// Count of packets and of their bytes on the wire.
type Count struct {
	Packets int64 `json:"packets"`
	Bytes   int64 `json:"bytes"`
}

func (c *Count) add(bytes int64) {
	c.Packets++
	c.Bytes += bytes
}

// Packets of both directions.
func (c Conversation) Packets() int64 { return c.AtoB.Packets + c.BtoA.Packets }

// Bytes of both directions.
func (c Conversation) Bytes() int64 { return c.AtoB.Bytes + c.BtoA.Bytes }

// Result of Read.
type Result struct {
	// Total of all packets.
	Total Count
	// Conversations, the busiest first: by bytes, then packets, then addresses.
	Conversations []Conversation
	// Other counts packets of conversations beyond maxConversations.
	Other Count
	// Truncated says that the file ends within a packet, for example because its writer was killed.
	Truncated bool
}

// key of a conversation: the smaller endpoint first.
type key struct {
	protocol  string
	low, high netip.AddrPort
}

// Read counts the packets of the pcapng file r. A file that ends within a block is read up to that block. An error
// comes from pcapng.Reader: r failed or is not a pcapng file.
func Read(r io.Reader) (Result, error) {
	c := NewCounter(maxConversations)
	truncated := false
	for reader := pcapng.NewReader(r); ; {
		b, err := reader.Next()
		if errors.Is(err, pcapng.ErrTruncated) {
			truncated, err = true, io.EOF
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Result{}, fmt.Errorf("read capture: %w", err)
		}
		if p, ok := b.(*pcapng.Packet); ok {
			c.Add(reader.Interfaces()[p.Interface], p)
		}
	}
	result := c.Result()
	result.Truncated = truncated
	return result, nil
}

// Counter counts packets one by one.
type Counter struct {
	most          int
	decoder       decoder
	conversations map[key]*tracked
	names         names
	total, other  Count
}

// NewCounter returns a Counter of at most so many conversations.
func NewCounter(most int) *Counter {
	return &Counter{most: most, conversations: map[key]*tracked{}, names: names{}}
}

// Add counts a packet of an interface.
func (c *Counter) Add(iface *pcapng.Interface, p *pcapng.Packet) {
	bytes := int64(p.Length)
	c.total.add(bytes)
	d := c.decoder.decode(iface.LinkType, p.Data)
	c.names.learn(iface, p, d.from.Addr())
	k := key{protocol: d.protocol, low: d.from, high: d.to}
	if k.high.Compare(k.low) < 0 {
		k.low, k.high = k.high, k.low
	}
	at := p.Timestamp()
	conversation := c.conversations[k]
	if conversation == nil {
		if len(c.conversations) >= c.most {
			c.other.add(bytes)
			return
		}
		conversation = &tracked{Conversation: Conversation{Protocol: d.protocol, A: d.from, B: d.to, First: at, Last: at}, iface: iface}
		c.conversations[k] = conversation
	}
	side := &conversation.btoa
	if d.from == conversation.A {
		side = &conversation.atob
		conversation.AtoB.add(bytes)
	} else {
		conversation.BtoA.add(bytes)
	}
	if iface == conversation.iface && side.again(d.segment) {
		conversation.Retransmissions++
	}
	if at.Before(conversation.First) {
		conversation.First = at
	}
	if at.After(conversation.Last) {
		conversation.Last = at
	}
}

// Forget removes the conversations whose last packet is from before a time.
func (c *Counter) Forget(before time.Time) {
	for k, t := range c.conversations {
		if t.Last.Before(before) {
			delete(c.conversations, k)
		}
	}
}

// Result returns the counts so far.
func (c *Counter) Result() Result {
	r := Result{Total: c.total, Other: c.other, Conversations: make([]Conversation, 0, len(c.conversations))}
	pods := c.names.known()
	for _, t := range c.conversations {
		t.AName, t.BName = pods[t.A.Addr()], pods[t.B.Addr()]
		r.Conversations = append(r.Conversations, t.Conversation)
	}
	slices.SortFunc(r.Conversations, func(a, b Conversation) int {
		return cmp.Or(
			cmp.Compare(b.Bytes(), a.Bytes()), cmp.Compare(b.Packets(), a.Packets()),
			strings.Compare(a.Protocol, b.Protocol), a.A.Compare(b.A), a.B.Compare(b.B),
		)
	})
	return r
}
