package conversations

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// key of a conversation: the smaller endpoint first.
type key struct {
	protocol  string
	low, high netip.AddrPort
	// host is set for loopback addresses, which every Pod has.
	host *pcapng.Interface
}

func keyOf(iface *pcapng.Interface, d *Packet) key {
	k := key{protocol: d.Protocol, low: d.From, high: d.To}
	if k.high.Compare(k.low) < 0 {
		k.low, k.high = k.high, k.low
	}
	if d.From.Addr().IsLoopback() {
		k.host = iface
	}
	return k
}

// Counter adds up packets by conversation.
type Counter struct {
	// Total counts all packets, and Other those of conversations beyond the limit.
	Total, Other Count

	limit         int
	conversations map[key]*Conversation
	names         names
}

// NewCounter returns a Counter that keeps at most limit conversations, of about 200 bytes each.
func NewCounter(limit int) *Counter {
	return &Counter{limit: limit, conversations: map[key]*Conversation{}, names: names{}}
}

// Add counts a packet and returns its conversation; nil beyond the limit.
func (c *Counter) Add(iface *pcapng.Interface, p *pcapng.Packet, d *Packet) *Conversation {
	bytes := int64(p.Length)
	c.Total.add(bytes)
	c.names.learn(iface, p, d.From.Addr())
	k, at := keyOf(iface, d), p.Timestamp()
	conversation := c.conversations[k]
	if conversation == nil {
		if len(c.conversations) >= c.limit {
			c.Other.add(bytes)
			return nil
		}
		conversation = &Conversation{Protocol: d.Protocol, A: d.From, B: d.To, First: at, Last: at}
		c.conversations[k] = conversation
	}
	if d.From == conversation.A {
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
	return conversation
}

// Forget removes the conversations whose last packet is from before a time, so that there is room for others.
func (c *Counter) Forget(before time.Time) {
	for k, t := range c.conversations {
		if t.Last.Before(before) {
			delete(c.conversations, k)
		}
	}
}

// Sorted names the endpoints of all conversations and returns them, the busiest first: by bytes, then packets, then
// addresses.
func (c *Counter) Sorted() []*Conversation {
	pods := c.names.known()
	all := make([]*Conversation, 0, len(c.conversations))
	for k, t := range c.conversations {
		if k.host != nil {
			t.AName = PodOf(k.host)
			t.BName = t.AName
		} else {
			t.AName, t.BName = pods[t.A.Addr()], pods[t.B.Addr()]
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *Conversation) int {
		return cmp.Or(
			cmp.Compare(b.Bytes(), a.Bytes()), cmp.Compare(b.Packets(), a.Packets()),
			strings.Compare(a.Protocol, b.Protocol), a.A.Compare(b.A), a.B.Compare(b.B), strings.Compare(a.AName, b.AName),
		)
	})
	return all
}

func (c *Counter) result() Result {
	r := Result{Total: c.Total, Other: c.Other}
	for _, t := range c.Sorted() {
		r.Conversations = append(r.Conversations, *t)
	}
	return r
}
