package packetview

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/internal/cli/timeline"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Protocols that are analysed, as conversations names them.
const (
	protocolTCP = "TCP"
	protocolUDP = "UDP"
	udpHeader   = 8
)

// SoftMemoryLimit is for the Go runtime while a report is made, in bytes. Near it the runtime collects garbage more often, so that the
// process needs less than 256 MiB. What a report keeps takes less than half of the limit.
const SoftMemoryLimit = 192 << 20

// Read sums up the pcapng file r. A file that ends within a block is read up to that block. An error comes from
// pcapng.Reader: r failed or is not a pcapng file.
func Read(r io.Reader) (*Summary, error) {
	a := &analysis{
		reader: pcapng.NewReader(r), counter: conversations.NewCounter(maxConversations),
		flows: map[*conversations.Conversation]*flow{}, interfaces: map[*pcapng.Interface]*Interface{},
		summary: &Summary{Timeline: timeline.New(seriesCount), DNS: newDNS(), HTTP: newHTTP()},
	}
	for {
		b, err := a.reader.Next()
		switch {
		case errors.Is(err, pcapng.ErrTruncated):
			a.summary.Truncated = true
			return a.end(), nil
		case errors.Is(err, io.EOF):
			return a.end(), nil
		case err != nil:
			return nil, fmt.Errorf("read capture: %w", err)
		}
		a.block(b)
	}
}

// analysis is the state while a file is read.
type analysis struct {
	reader      *pcapng.Reader
	decoder     conversations.Decoder
	counter     *conversations.Counter
	flows       map[*conversations.Conversation]*flow
	interfaces  map[*pcapng.Interface]*Interface
	others      []*pcapng.Interface // of this section, beyond maxInterfaces
	first, last uint64
	summary     *Summary
}

func (a *analysis) block(b pcapng.Block) {
	switch b := b.(type) {
	case *pcapng.Section:
		a.section(b)
	case *pcapng.Interface:
		a.describe(b)
	case *pcapng.Packet:
		a.packet(b)
	case *pcapng.Statistics:
		a.statistics(b)
	}
}

func (a *analysis) section(s *pcapng.Section) {
	a.forgetOthers()
	if a.summary.Application == "" {
		a.summary.Application = text.Truncate(s.Application, maxText)
	}
	for _, c := range s.Comments {
		if len(a.summary.Comments) < maxComments {
			a.summary.Comments = append(a.summary.Comments, text.Truncate(c, maxText))
		}
	}
}

func (a *analysis) describe(i *pcapng.Interface) {
	if len(a.summary.Interfaces) >= maxInterfaces {
		a.summary.OtherInterfaces++
		a.interfaces[i] = &Interface{} // for its statistics
		a.others = append(a.others, i)
		return
	}
	pod := conversations.PodOf(i)
	described := &Interface{
		Pod: text.Truncate(pod, maxText), Name: text.Truncate(i.Name, maxText), Filter: text.Truncate(i.Filter, maxText),
	}
	if _, node, ok := strings.Cut(i.Description, ", node "); ok && pod != "" {
		described.Node = text.Truncate(node, maxText)
	} else {
		described.Description = text.Truncate(i.Description, maxText)
	}
	a.interfaces[i] = described
	a.summary.Interfaces = append(a.summary.Interfaces, described)
}

func (a *analysis) statistics(s *pcapng.Statistics) {
	i := a.interfaces[a.reader.Interfaces()[s.Interface]]
	if i == nil {
		return
	}
	i.Ended, i.Dropped = true, 0
	switch { // isb_ifdrop includes isb_osdrop in the files of Sonde and of dumpcap
	case s.IfDrop != nil:
		i.Dropped = *s.IfDrop
	case s.OSDrop != nil:
		i.Dropped = *s.OSDrop
	}
	i.Start, i.End = stamp(s.Start), stamp(s.End)
}

// stamp converts nanoseconds since 1970. Zero means that the file does not say it.
func stamp(ns uint64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(int64(ns/1e9), int64(ns%1e9)).UTC()
}

func (a *analysis) packet(p *pcapng.Packet) {
	iface := a.reader.Interfaces()[p.Interface]
	d := a.decoder.Decode(iface.LinkType, p.Data, int(p.Length))
	if i := a.interfaces[iface]; i != nil {
		i.Captured.Packets++
		i.Captured.Bytes += int64(p.Length)
		i.latest = max(i.latest, p.Time)
	}
	if a.counter.Total.Packets == 0 || p.Time < a.first {
		a.first = p.Time
	}
	a.last = max(a.last, p.Time)
	a.summary.Timeline.Add(SeriesPackets, p.Time, 1)
	a.summary.Timeline.Add(SeriesBytes, p.Time, uint64(p.Length))
	c := a.counter.Add(iface, p, &d)
	if c == nil || len(d.Transport) == 0 {
		return
	}
	f := a.flows[c]
	if f == nil {
		f = &flow{conversation: c, iface: iface}
		a.flows[c] = f
	}
	if f.iface != iface {
		return
	}
	switch d.Protocol {
	case protocolTCP:
		a.segment(f, &d, p.Time)
	case protocolUDP:
		if isDNS(&d) && len(d.Transport) > udpHeader {
			a.summary.DNS.message(f, d.Transport[udpHeader:], p.Time)
		}
	}
}

func isDNS(d *conversations.Packet) bool { return d.From.Port() == dnsPort || d.To.Port() == dnsPort }

func (a *analysis) segment(f *flow, d *conversations.Packet, at uint64) {
	s, ok := parseSegment(d.Transport, d.TransportLength, at)
	if !ok {
		return
	}
	from := 0
	if d.From != f.conversation.A {
		from = 1
	}
	if f.connection == nil || f.connection.begins(&s, from) {
		f.open()
	}
	v, measured := f.connection.observe(&s, from)
	if measured {
		a.measure(f)
	}
	a.count(f, &s, v)
	switch {
	case isDNS(d):
		a.summary.DNS.stream(f, &s)
	case f.http != nil:
		f.http.add(&s, from)
	case s.length > 0 && beginsMessage(s.payload):
		f.http = newExchange(&a.summary.HTTP)
		f.http.add(&s, from)
	}
}

// open begins a connection, also on ports that were used before.
func (f *flow) open() {
	f.connection = &connection{}
	f.tcp.Connections++
	if f.http != nil {
		f.http.close()
		f.http = nil
	}
}

// measure adds the round-trip time of a connection that was just opened.
func (a *analysis) measure(f *flow) {
	rtt := time.Duration(f.connection.rtt)
	a.summary.RTT.add(rtt)
	if f.rtt == 0 || rtt < f.rtt {
		f.rtt = rtt
	}
}

func (a *analysis) count(f *flow, s *segment, v verdict) {
	if s.has(flagRST) {
		f.tcp.Resets++
		a.summary.Timeline.Add(SeriesResets, s.at, 1)
	}
	switch v {
	case ordinary:
		return
	case outOfOrder:
		f.tcp.OutOfOrder++
		return
	case fastRetransmission:
		f.tcp.Fast++
	case spuriousRetransmission:
		f.tcp.Spurious++
	case retransmission:
	}
	f.tcp.Retransmissions++
	a.summary.Timeline.Add(SeriesRetransmissions, s.at, 1)
}

// forgetOthers sums up the interfaces beyond the limit. It forgets all of the section, because blocks of later sections name their own.
func (a *analysis) forgetOthers() {
	for _, key := range a.others {
		i := a.interfaces[key]
		i.judge()
		a.summary.OtherDropped += i.Dropped
		switch {
		case !i.Ended:
			a.summary.OtherOpen++
		case i.Late:
			a.summary.OtherLate++
		}
	}
	a.others = nil
	clear(a.interfaces)
}

// judge finds out whether the interface has packets after its statistics.
func (i *Interface) judge() { i.Late = !i.End.IsZero() && stamp(i.latest).After(i.End) }

// end closes what is open and returns the summary.
func (a *analysis) end() *Summary {
	s := a.summary
	s.Total, s.Other = a.counter.Total, a.counter.Other
	for _, i := range s.Interfaces {
		i.judge()
	}
	a.forgetOthers()
	if s.Total.Packets > 0 {
		s.First, s.Last = time.Unix(0, int64(a.first)).UTC(), time.Unix(0, int64(a.last)).UTC()
	}
	s.DNS.end()
	for _, c := range a.counter.Sorted() {
		conversation := Conversation{Conversation: c}
		if f := a.flows[c]; f != nil {
			conversation.TCP, conversation.RTT = f.tcp, f.rtt
			s.TCP.add(f.tcp)
			if f.http != nil {
				f.http.close()
			}
		}
		s.Conversations = append(s.Conversations, conversation)
	}
	return s
}

func (t *TCP) add(o TCP) {
	t.Connections += o.Connections
	t.Retransmissions += o.Retransmissions
	t.Fast += o.Fast
	t.Spurious += o.Spurious
	t.OutOfOrder += o.OutOfOrder
	t.Resets += o.Resets
}
