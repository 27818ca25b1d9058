package htmlreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sonde-operator/sonde/internal/cli/packetview"
)

// Largest number of rows of a table.
const (
	maxRows = 100
	// troubledRows are added to the busiest conversations, if they have retransmissions or resets.
	troubledRows = 20
)

// Outcome is what the cluster or the plugin knows of how the capture or trace ended. The zero value means nothing.
type Outcome struct {
	// Known says that the rest is set.
	Known    bool
	Complete bool
	// Limited says that the recording of a Pod ended at a limit of the spec.
	Limited bool
	// Overwritten packets were in files of a ring that newer ones have replaced.
	Overwritten int64
	// Problems say what is missing, and Notes are other facts.
	Problems, Notes []string
}

// CapturePage returns the page of a capture that was read from a file.
func CapturePage(file string, s *packetview.Summary, outcome Outcome) *Page {
	c := capturePage{s, newOrigin(s.Comments)}
	p := &Page{
		Kind: "Packet capture", Title: cmp.Or(c.origin.target, file), Facts: c.facts(file), Verdict: c.verdict(outcome),
		Figures: c.figures(), Findings: c.findings(), Sections: []Section{c.timeline()},
	}
	p.Sections = append(p.Sections, c.pairs(), c.conversations())
	if s.TCP.Connections > 0 {
		p.Sections = append(p.Sections, c.tcp())
	}
	if s.DNS.Queries+s.DNS.Responses > 0 {
		p.Sections = append(p.Sections, c.dns())
	}
	if s.HTTP.Requests+s.HTTP.Responses > 0 {
		p.Sections = append(p.Sections, c.http())
	}
	p.Sections = append(p.Sections, c.interfaces())
	return p
}

type capturePage struct {
	*packetview.Summary
	origin origin
}

// dropped counts the packets that the file's statistics report as dropped.
func (c *capturePage) dropped() uint64 {
	n := c.OtherDropped
	for _, i := range c.Interfaces {
		n += i.Dropped
	}
	return n
}

func (c *capturePage) pods() []string {
	pods := map[string]bool{}
	for _, i := range c.Interfaces {
		if i.Pod != "" {
			pods[i.Pod] = true
		}
	}
	return slices.Sorted(maps.Keys(pods))
}

func (c *capturePage) facts(file string) []Fact {
	facts := []Fact{{"Source", file}}
	if !c.First.IsZero() {
		facts = append(facts, Fact{"Began", moment(c.First)}, Fact{"Lasted", span(c.Last.Sub(c.First))})
	}
	if pods := c.pods(); len(pods) > 0 {
		facts = append(facts, Fact{"Pods", listed(pods, 3)})
	}
	for _, f := range []Fact{
		{"Capture", c.origin.capture}, {"Filter", c.origin.filter}, {"Requested by", c.origin.requester}, {"Written by", c.Application},
	} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// listed names the first few of all.
func listed(all []string, few int) string {
	s := strings.Join(all[:min(few, len(all))], ", ")
	if more := len(all) - few; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func (c *capturePage) verdict(o Outcome) Verdict {
	v := Verdict{Level: LevelGood, Text: "Complete: the file has every packet that passed the filter."}
	switch {
	case !o.Known:
		v = Verdict{Level: LevelPlain, Text: "The file shows no loss. Pods, interfaces, and packets that a ring has overwritten " +
			"can be missing nevertheless: only the summary of the capture names them."}
	case !o.Complete:
		v = Verdict{Level: LevelBad, Text: "Incomplete: packets are or may be missing."}
	case o.Overwritten > 0:
		v = Verdict{Level: LevelGood, Text: "Complete: the file has every packet that the ring of files still had at the end."}
	case o.Limited:
		v = Verdict{Level: LevelGood, Text: "Complete up to a limit of the capture: the file has every packet that passed the filter before."}
	}
	v.Reasons = append(slices.Clone(o.Problems), o.Notes...)
	if n := c.dropped(); n > 0 {
		v.lower(LevelWarning, "Not every packet is in the file: some were dropped.")
		if !o.Known {
			v.Reasons = append(v.Reasons, plural(n, "packet was", "packets were")+" dropped: they passed the filter and are not in the file")
		}
	}
	if c.Truncated {
		v.lower(LevelBad, "Incomplete: the file ends within a packet.")
		v.Reasons = append(v.Reasons, "The writer of the file was killed, or is still running.")
	}
	if !o.Known {
		c.judgeStatistics(&v)
	}
	return v
}

// judgeStatistics lowers the verdict if the statistics do not cover all of the file.
func (c *capturePage) judgeStatistics(v *Verdict) {
	open, late := c.OtherOpen, c.OtherLate
	for _, i := range c.Interfaces {
		switch {
		case !i.Ended:
			open++
		case i.Late:
			late++
		}
	}
	if open+late > 0 {
		v.lower(LevelWarning, "It is not known whether the file is complete.")
	}
	if open > 0 {
		v.Reasons = append(v.Reasons, fmt.Sprintf("The file has no closing statistics of %s.", plural(open, "interface", "interfaces")))
	}
	if late > 0 {
		v.Reasons = append(v.Reasons, fmt.Sprintf("The file has packets of %s from after the closing statistics.", plural(late, "interface", "interfaces")))
	}
}

// lower sets level and text, unless they are worse already.
func (v *Verdict) lower(level Level, text string) {
	if v.Level == LevelBad || v.Level == level {
		return
	}
	v.Level, v.Text = level, text
}
