package packetview

import (
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	dnsPort = 53
	// repeatedWithin is how long after a query the same one repeats it, in nanoseconds. A later one is another query.
	repeatedWithin = uint64(5 * time.Second)
	// maxPending limits the queries that wait for a response, in each of two generations.
	maxPending = 1 << 14
	maxNames   = 1 << 12
)

// Lookup sums up the queries for one name and type.
type Lookup struct {
	Name, Type string
	// Queries without repetitions, Repeated ones, and those without a response in the file.
	Queries, Repeated, Unanswered uint64
	// Codes counts the responses by their code, like NOERROR and NXDOMAIN.
	Codes map[string]uint64
	// Took is the time from a query to its first response.
	Took Durations
}

// Failed counts responses with an error, and queries without a response.
func (l *Lookup) Failed() uint64 {
	n := l.Unanswered
	for code, count := range l.Codes {
		if code != "NOERROR" {
			n += count
		}
	}
	return n
}

// DNS sums up queries and responses on port 53.
type DNS struct {
	Queries, Repeated, Responses, Unanswered uint64
	// Codes counts all responses by their code.
	Codes map[string]uint64
	// Took is the time from a query to its first response.
	Took Durations
	// Lookups by name and type. Other counts queries for names beyond the limit.
	Lookups map[LookupKey]*Lookup
	Other   uint64

	pending, older map[queryKey]query
}

// LookupKey identifies a Lookup.
type LookupKey struct{ Name, Type string }

type queryKey struct {
	flow *flow
	id   uint16
}

type query struct {
	at     uint64
	lookup *Lookup // nil beyond the limit
}

func newDNS() DNS {
	return DNS{Codes: map[string]uint64{}, Lookups: map[LookupKey]*Lookup{}, pending: map[queryKey]query{}, older: map[queryKey]query{}}
}

// stream adds a segment, if it is exactly one message: a length and the message.
func (d *DNS) stream(f *flow, s *segment) {
	if len(s.payload) > 2 && int(binary.BigEndian.Uint16(s.payload)) == len(s.payload)-2 {
		d.message(f, s.payload[2:], s.at)
	}
}

// message adds a message. Others than queries and their responses are ignored, and so is what is no message.
func (d *DNS) message(f *flow, b []byte, at uint64) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return
	}
	if h.Response {
		d.response(queryKey{f, h.ID}, &h, at)
		return
	}
	question, err := p.Question()
	if err != nil {
		return
	}
	d.query(queryKey{f, h.ID}, question, at)
}

func (d *DNS) query(k queryKey, question dnsmessage.Question, at uint64) {
	lookup := d.lookup(question)
	if before, ok := d.find(k); ok && at-before.at < repeatedWithin {
		d.Repeated++
		if lookup != nil {
			lookup.Repeated++
		}
		return
	}
	d.Queries++
	if lookup == nil {
		d.Other++
	} else {
		lookup.Queries++
	}
	d.forget(k)
	if len(d.pending) >= maxPending {
		d.expire(d.older)
		d.pending, d.older = map[queryKey]query{}, d.pending
	}
	d.pending[k] = query{at: at, lookup: lookup}
}

func (d *DNS) find(k queryKey) (query, bool) {
	q, ok := d.pending[k]
	if !ok {
		q, ok = d.older[k]
	}
	return q, ok
}

// forget removes a query whose ID is used again.
func (d *DNS) forget(k queryKey) {
	if q, ok := d.find(k); ok {
		d.expire(map[queryKey]query{k: q})
		delete(d.pending, k)
		delete(d.older, k)
	}
}

// expire counts the queries that have no response.
func (d *DNS) expire(all map[queryKey]query) {
	for _, q := range all {
		d.Unanswered++
		if q.lookup != nil {
			q.lookup.Unanswered++
		}
	}
}

func (d *DNS) end() {
	d.expire(d.older)
	d.expire(d.pending)
}

func (d *DNS) response(k queryKey, h *dnsmessage.Header, at uint64) {
	code := codeName(h.RCode)
	d.Responses++
	d.Codes[code]++
	q, ok := d.find(k)
	if !ok {
		return
	}
	delete(d.pending, k)
	delete(d.older, k)
	took := time.Duration(at - q.at)
	d.Took.add(took)
	if q.lookup != nil {
		q.lookup.Codes[code]++
		q.lookup.Took.add(took)
	}
}

func (d *DNS) lookup(question dnsmessage.Question) *Lookup {
	k := LookupKey{strings.ToLower(question.Name.String()), strings.TrimPrefix(question.Type.String(), "Type")}
	l := d.Lookups[k]
	if l == nil && len(d.Lookups) < maxNames {
		l = &Lookup{Name: k.Name, Type: k.Type, Codes: map[string]uint64{}}
		d.Lookups[k] = l
	}
	return l
}

// codeName returns the name of a response code in the registry of IANA.
func codeName(c dnsmessage.RCode) string {
	names := [...]string{"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"}
	if int(c) < len(names) {
		return names[c]
	}
	return strings.ToUpper(strings.TrimPrefix(c.String(), "RCode"))
}
