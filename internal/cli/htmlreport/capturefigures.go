package htmlreport

import (
	"github.com/sonde-operator/sonde/internal/cli/live"
)

func (c *capturePage) figures() []Figure {
	all := []Figure{
		{Label: "Packets", Value: number(c.Total.Packets), Note: plural(len(c.Conversations), "conversation", "conversations")},
		{Label: "Bytes", Value: live.Bytes(c.Total.Bytes), Note: c.rate()},
		alarm(Figure{Label: "Dropped", Value: number(c.dropped()), Note: "of those that passed the filter"}, c.dropped(), LevelWarning),
	}
	if c.TCP.Connections > 0 {
		all = append(all,
			Figure{Label: "TCP connections", Value: number(c.TCP.Connections)},
			alarm(Figure{Label: "Retransmissions", Value: number(c.TCP.Retransmissions), Note: percent(c.TCP.Retransmissions, uint64(c.tcpPackets())) + " of TCP packets"},
				c.TCP.Retransmissions, LevelWarning),
			alarm(Figure{Label: "Resets", Value: number(c.TCP.Resets), Note: "segments with RST"}, c.TCP.Resets, LevelWarning),
		)
	}
	if c.RTT.Count > 0 {
		all = append(all, Figure{Label: "Round-trip time", Value: span(c.RTT.Quantile(.5)), Note: "median; 95% within " + span(c.RTT.Quantile(.95))})
	}
	if c.DNS.Queries > 0 {
		bad := c.dnsFailures()
		all = append(all, alarm(Figure{Label: "DNS failures", Value: number(bad), Note: "of " + plural(c.DNS.Queries, "query", "queries")}, bad, LevelWarning))
	}
	if c.HTTP.Responses > 0 {
		bad := c.serverErrors()
		all = append(all,
			alarm(Figure{Label: "HTTP 5xx", Value: number(bad), Note: "of " + plural(c.HTTP.Responses, "response", "responses")}, bad, LevelBad),
			Figure{Label: "HTTP latency", Value: span(c.HTTP.Took.Quantile(.5)), Note: "median; 95% within " + span(c.HTTP.Took.Quantile(.95))},
		)
	}
	return all
}

// alarm sets the level of a figure whose count is not zero.
func alarm(f Figure, n uint64, level Level) Figure {
	if n > 0 {
		f.Level = level
	}
	return f
}

func (c *capturePage) rate() string {
	seconds := c.Last.Sub(c.First).Seconds()
	if seconds <= 0 {
		return ""
	}
	return live.Bytes(int64(float64(c.Total.Bytes)/seconds)) + "/s on average"
}

func (c *capturePage) tcpPackets() int64 {
	var n int64
	for i := range c.Conversations {
		if c.Conversations[i].Protocol == "TCP" {
			n += c.Conversations[i].Packets()
		}
	}
	return n
}

func (c *capturePage) dnsFailures() uint64 {
	n := c.DNS.Unanswered
	for code, count := range c.DNS.Codes {
		if code != "NOERROR" {
			n += count
		}
	}
	return n
}

func (c *capturePage) serverErrors() uint64 {
	var n uint64
	for status, count := range c.HTTP.Statuses {
		if status >= 500 {
			n += count
		}
	}
	return n
}
