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
	c := &counter{reader: pcapng.NewReader(r), conversations: map[key]*Conversation{}, names: names{}}
	err := c.run()
	if errors.Is(err, pcapng.ErrTruncated) {
		c.result.Truncated, err = true, nil
	}
	if err != nil {
		return Result{}, fmt.Errorf("read capture: %w", err)
	}
	return c.sorted(), nil
}

type counter struct {
	reader        *pcapng.Reader
	decoder       decoder
	conversations map[key]*Conversation
	names         names
	result        Result
}

func (c *counter) run() error {
	for {
		b, err := c.reader.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, pcapng.ErrTruncated) {
			return nil
		}
		if err != nil {
			return err
		}
		if p, ok := b.(*pcapng.Packet); ok {
			c.packet(p)
		}
	}
}

func (c *counter) packet(p *pcapng.Packet) {
	bytes := int64(p.Length)
	c.result.Total.add(bytes)
	iface := c.reader.Interfaces()[p.Interface]
	d := c.decoder.decode(iface.LinkType, p.Data)
	c.names.learn(iface, p, d.from.Addr())
	k := key{protocol: d.protocol, low: d.from, high: d.to}
	if k.high.Compare(k.low) < 0 {
		k.low, k.high = k.high, k.low
	}
	at := p.Timestamp()
	conversation := c.conversations[k]
	if conversation == nil {
		if len(c.conversations) == maxConversations {
			c.result.Other.add(bytes)
			return
		}
		conversation = &Conversation{Protocol: d.protocol, A: d.from, B: d.to, First: at, Last: at}
		c.conversations[k] = conversation
	}
	if d.from == conversation.A {
		conversation.AtoB.add(bytes)
	} else {
		conversation.BtoA.add(bytes)
	}
	if at.Before(conversation.First) {
		conversation.First = at
	}
	if at.After(conversation.Last) {
		conversation.Last = at
	}
}

func (c *counter) sorted() Result {
	pods := c.names.known()
	for _, t := range c.conversations {
		t.AName, t.BName = pods[t.A.Addr()], pods[t.B.Addr()]
		c.result.Conversations = append(c.result.Conversations, *t)
	}
	slices.SortFunc(c.result.Conversations, func(a, b Conversation) int {
		return cmp.Or(
			cmp.Compare(b.Bytes(), a.Bytes()), cmp.Compare(b.Packets(), a.Packets()),
			strings.Compare(a.Protocol, b.Protocol), a.A.Compare(b.A), a.B.Compare(b.B),
		)
	})
	return c.result
}
