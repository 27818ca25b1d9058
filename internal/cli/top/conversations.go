package top

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Limits of the conversations in the table. When there are half of maxConversations, those without a packet for maxQuiet are forgotten.
const (
	maxConversations = 1 << 15
	maxQuiet         = 30 * time.Second
)

// Conversations is the source of the table of a packet capture.
type Conversations struct {
	mu      sync.Mutex
	decoder conversations.Decoder
	counter *conversations.Counter
	tracked map[*conversations.Conversation]*tracked
	last    time.Time // of the packets
}

// tracked is what the table needs of a conversation beside its counts.
type tracked struct {
	// packets and bytes of the last sample.
	packets, bytes int64
	resent         resent
}

// NewConversations returns a table, and what counts its packets.
func NewConversations() (*Top, *Conversations) {
	c := &Conversations{counter: conversations.NewCounter(maxConversations), tracked: map[*conversations.Conversation]*tracked{}}
	return &Top{
		source: c, what: "conversations", heads: []string{"PROTOCOL", "A", "B"},
		columns: []column{
			{'p', "PACKETS/S", "packets/s", count},
			{'b', "BYTES/S", "bytes/s", size},
			{'t', "TOTAL", "total bytes", size},
			{'r', "RETRANS", "retransmissions", count},
		},
	}, c
}

// Read counts the packets of a pcapng stream until its end.
func (c *Conversations) Read(r io.Reader) error {
	for reader := pcapng.NewReader(r); ; {
		b, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("count conversations: %w", err)
		}
		if p, ok := b.(*pcapng.Packet); ok {
			c.add(reader.Interfaces()[p.Interface], p)
		}
	}
}

func (c *Conversations) add(iface *pcapng.Interface, p *pcapng.Packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	decoded := c.decoder.Decode(iface.LinkType, p.Data, int(p.Length))
	if conversation := c.counter.Add(iface, p, &decoded); conversation != nil {
		c.of(conversation).resent.add(iface, decoded.From == conversation.A, &decoded)
	}
	if at := p.Timestamp(); at.After(c.last) {
		c.last = at
	}
}

// of returns what is tracked of a conversation.
func (c *Conversations) of(conversation *conversations.Conversation) *tracked {
	t := c.tracked[conversation]
	if t == nil {
		t = &tracked{}
		c.tracked[conversation] = t
	}
	return t
}

func (c *Conversations) sample(since time.Duration) []row {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.counter.Sorted()
	rows := make([]row, 0, len(all))
	for _, v := range all {
		t := c.of(v)
		rows = append(rows, row{
			numbers: []float64{rate(v.Packets(), t.packets, since), rate(v.Bytes(), t.bytes, since), float64(v.Bytes()), float64(t.resent.count)},
			names:   []string{v.Protocol, conversations.Endpoint(v.A, v.AName), conversations.Endpoint(v.B, v.BName)},
		})
		t.packets, t.bytes = v.Packets(), v.Bytes()
	}
	if len(all) > maxConversations/2 {
		quiet := c.last.Add(-maxQuiet)
		c.counter.Forget(quiet)
		maps.DeleteFunc(c.tracked, func(v *conversations.Conversation, _ *tracked) bool { return v.Last.Before(quiet) })
	}
	return rows
}
