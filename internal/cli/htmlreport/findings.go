package htmlreport

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/packetview"
)

// maxFindings keeps the list short enough to be read.
const maxFindings = 6

// findings returns sentences about what stands out, the gravest first.
func (c *capturePage) findings() []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if n := c.dropped(); n > 0 {
		add("%s dropped before the file: figures below are of the packets in the file.", plural(n, "packet was", "packets were"))
	}
	if r := c.worstRoute(); r != nil {
		add("%s %s%s answered %s of %s with 5xx.", r.Method, r.Host, r.Path, number(serverErrors(r)), plural(r.Requests, "request", "requests"))
	}
	if p := c.worstPair(); p != nil {
		add("%s and %s have %s of %s.", p.A, p.B, number(p.TCP.Retransmissions), plural(c.TCP.Retransmissions, "retransmission", "retransmissions"))
	}
	if l := c.worstLookup(); l != nil {
		add("Lookups of %s failed %s: %s.", l.Name, plural(l.Failed(), "time", "times"), codesOf(l))
	}
	if slow := c.HTTP.Took.Max; slow >= time.Second {
		add("The slowest HTTP response took %s; 99%% took at most %s.", span(slow), span(c.HTTP.Took.Quantile(.99)))
	}
	if slow := c.DNS.Took.Max; slow >= 100*time.Millisecond {
		add("The slowest DNS response took %s; 99%% took at most %s.", span(slow), span(c.DNS.Took.Quantile(.99)))
	}
	return all[:min(maxFindings, len(all))]
}

func serverErrors(r *packetview.Route) uint64 {
	var n uint64
	for status, count := range r.Statuses {
		if status >= 500 {
			n += count
		}
	}
	return n
}

// worstRoute returns the route with the most responses 5xx; nil without any.
func (c *capturePage) worstRoute() *packetview.Route {
	return worst(slices.Collect(maps.Values(c.HTTP.Routes)), serverErrors, func(r *packetview.Route) string { return r.Method + r.Host + r.Path })
}

// worstPair returns the pair with the most retransmissions; nil without any.
func (c *capturePage) worstPair() *packetview.Pair {
	return worst(c.Pairs(), func(p *packetview.Pair) uint64 { return p.TCP.Retransmissions }, func(p *packetview.Pair) string { return p.A + p.B })
}

// worstLookup returns the name with the most failures; nil without any.
func (c *capturePage) worstLookup() *packetview.Lookup {
	return worst(slices.Collect(maps.Values(c.DNS.Lookups)), (*packetview.Lookup).Failed, func(l *packetview.Lookup) string { return l.Name + l.Type })
}

// worst returns the one with the highest count above zero, and of equals the first by name.
func worst[T any](all []*T, count func(*T) uint64, name func(*T) string) *T {
	var found *T
	for _, one := range all {
		switch n := count(one); {
		case n == 0:
		case found == nil, n > count(found), n == count(found) && name(one) < name(found):
			found = one
		}
	}
	return found
}
