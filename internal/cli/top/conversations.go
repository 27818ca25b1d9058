package top

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
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

// pair identifies a conversation.
type pair struct {
	protocol string
	a, b     netip.AddrPort
}

// Conversations is the source of the table of a packet capture.
type Conversations struct {
	mu      sync.Mutex
	counter *conversations.Counter
	before  map[pair]conversations.Conversation
	last    time.Time // of the packets
}

// NewConversations returns a table, and what counts its packets.
func NewConversations() (*Top, *Conversations) {
	c := &Conversations{counter: conversations.NewCounter(maxConversations)}
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
	c.counter.Add(iface, p)
	if at := p.Timestamp(); at.After(c.last) {
		c.last = at
	}
}

func (c *Conversations) sample(since time.Duration) []row {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.counter.Result().Conversations
	rows, now := make([]row, 0, len(all)), make(map[pair]conversations.Conversation, len(all))
	for _, t := range all {
		k := pair{t.Protocol, t.A, t.B}
		before := c.before[k]
		now[k] = t
		rows = append(rows, row{
			numbers: []float64{
				rate(t.Packets(), before.Packets(), since), rate(t.Bytes(), before.Bytes(), since), float64(t.Bytes()), float64(t.Retransmissions),
			},
			names: []string{t.Protocol, conversations.Endpoint(t.A, t.AName), conversations.Endpoint(t.B, t.BName)},
		})
	}
	c.before = now
	if len(all) > maxConversations/2 {
		c.counter.Forget(c.last.Add(-maxQuiet))
	}
	return rows
}
