package packetview

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
)

// Pair is the traffic between two Pods or addresses, over all ports and protocols.
type Pair struct {
	// A and B are Pods ("namespace/name"), or else addresses. If one is a Pod, it is A.
	A, B          string
	Conversations int
	AtoB, BtoA    conversations.Count
	TCP           TCP
	// RTT is the shortest initial round-trip time; zero if it is unknown.
	RTT time.Duration
}

// Bytes of both directions.
func (p *Pair) Bytes() int64 { return p.AtoB.Bytes + p.BtoA.Bytes }

// Packets of both directions.
func (p *Pair) Packets() int64 { return p.AtoB.Packets + p.BtoA.Packets }

// Pairs adds up the conversations by Pod, and by address where there is none. The busiest come first.
func (s *Summary) Pairs() []*Pair {
	pairs := map[[2]string]*Pair{}
	for i := range s.Conversations {
		c := &s.Conversations[i]
		if !c.A.IsValid() {
			continue
		}
		a, b := place(c.A, c.AName), place(c.B, c.BName)
		ab, ba := c.AtoB, c.BtoA
		if podFirst := cmp.Compare(min(1, len(c.BName)), min(1, len(c.AName))); cmp.Or(podFirst, strings.Compare(a, b)) > 0 {
			a, b, ab, ba = b, a, ba, ab
		}
		p := pairs[[2]string{a, b}]
		if p == nil {
			p = &Pair{A: a, B: b}
			pairs[[2]string{a, b}] = p
		}
		p.add(c, ab, ba)
	}
	all := make([]*Pair, 0, len(pairs))
	for _, p := range pairs {
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y *Pair) int {
		return cmp.Or(cmp.Compare(y.Bytes(), x.Bytes()), strings.Compare(x.A, y.A), strings.Compare(x.B, y.B))
	})
	return all
}

func place(a netip.AddrPort, pod string) string { return cmp.Or(pod, a.Addr().String()) }

func (p *Pair) add(c *Conversation, ab, ba conversations.Count) {
	p.Conversations++
	p.AtoB.Packets += ab.Packets
	p.AtoB.Bytes += ab.Bytes
	p.BtoA.Packets += ba.Packets
	p.BtoA.Bytes += ba.Bytes
	p.TCP.add(c.TCP)
	if c.RTT > 0 && (p.RTT == 0 || c.RTT < p.RTT) {
		p.RTT = c.RTT
	}
}
