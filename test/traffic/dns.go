package traffic

import (
	"net/netip"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Query returns the message of a query. The name ends in a dot.
func Query(id uint16, name string, kind dnsmessage.Type) []byte {
	return message(name, kind, dnsmessage.Header{ID: id, RecursionDesired: true})
}

// Answer returns the message of a response without records.
func Answer(id uint16, name string, kind dnsmessage.Type, code dnsmessage.RCode) []byte {
	return message(name, kind, dnsmessage.Header{ID: id, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: code})
}

func message(name string, kind dnsmessage.Type, h dnsmessage.Header) []byte {
	m := dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET,
	}}}
	b, err := m.Pack()
	if err != nil {
		panic(err) // a name that a test made up
	}
	return b
}

// Lookup adds a query and, unless took is negative, its response.
func (f *File) Lookup(iface uint32, client, server netip.AddrPort, id uint16, name string, code dnsmessage.RCode, took time.Duration) {
	f.UDP(iface, pcapng.Outbound, client, server, Query(id, name, dnsmessage.TypeA))
	if took < 0 {
		return
	}
	f.Wait(took)
	f.UDP(iface, pcapng.Inbound, server, client, Answer(id, name, dnsmessage.TypeA, code))
}
