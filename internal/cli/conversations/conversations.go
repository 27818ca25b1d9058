package conversations

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
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

// Read counts the packets of the pcapng file r. A file that ends within a block is read up to that block. An error
// comes from pcapng.Reader: r failed or is not a pcapng file.
func Read(r io.Reader) (Result, error) {
	reader, counter := pcapng.NewReader(r), NewCounter(maxConversations)
	var decoder Decoder
	for {
		b, err := reader.Next()
		switch {
		case errors.Is(err, pcapng.ErrTruncated):
			result := counter.result()
			result.Truncated = true
			return result, nil
		case errors.Is(err, io.EOF):
			return counter.result(), nil
		case err != nil:
			return Result{}, fmt.Errorf("read capture: %w", err)
		}
		if p, ok := b.(*pcapng.Packet); ok {
			iface := reader.Interfaces()[p.Interface]
			decoded := decoder.Decode(iface.LinkType, p.Data, int(p.Length))
			counter.Add(iface, p, &decoded)
		}
	}
}
