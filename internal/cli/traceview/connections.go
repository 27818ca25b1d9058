package traceview

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Names of the events of connections, and of their arguments.
const (
	callConnection = "connection"
	callRetransmit = "retransmit"
	callReset      = "reset"

	argLocal       = "local"
	argRemote      = "remote"
	argRole        = "role"
	argSent        = "sent"
	argReceived    = "received"
	argRetransmits = "retransmits"
	argRTT         = "rttNs"
	argDuration    = "durationNs"
	argState       = "state"
	argEndedBy     = "endedBy"
	argOpen        = "open"
	argBy          = "by"
	argBytes       = "bytes"

	roleClient = "client"
	roleServer = "server"
)

// isConnectionEvent reports whether an event is about a connection and is not a call.
func isConnectionEvent(r *tracefmt.Record) bool {
	return r.Call == callConnection || r.Call == callRetransmit || r.Call == callReset
}

// textArgument returns the text of an argument, or nothing if the event does not have it.
func textArgument(r *tracefmt.Record, name string) string {
	if a := argument(r, name); a != nil && a.Kind == tracefmt.Text {
		return string(a.Text)
	}
	return ""
}

// numberArgument returns the number of an argument, or zero if the event does not have it.
func numberArgument(r *tracefmt.Record, name string) uint64 {
	if a := argument(r, name); a != nil && a.Kind != tracefmt.Text && a.Kind != tracefmt.List {
		return uint64(a.Number)
	}
	return 0
}

// connectionText describes an event of a connection: its endpoints, then its counts and its state.
func connectionText(r *tracefmt.Record) string {
	arrow := map[string]string{roleClient: "->", roleServer: "<-"}[textArgument(r, argRole)]
	parts := []string{endpoints(r, cmp.Or(arrow, "--"))}
	for _, name := range []string{argSent, argReceived, argRetransmits, argBytes} {
		if a := argument(r, name); a != nil && (name != argRetransmits || a.Number != 0) {
			parts = append(parts, name+"="+numberText(a))
		}
	}
	for _, one := range []struct{ name, says string }{{argRTT, "rtt"}, {argDuration, "lasted"}} {
		if n := numberArgument(r, one.name); n > 0 {
			parts = append(parts, one.says+"="+formatDuration(time.Duration(n)))
		}
	}
	if s := textArgument(r, argState); s != "" {
		parts = append(parts, quoted(s))
	}
	if numberArgument(r, argOpen) != 0 {
		parts = append(parts, "still open")
	}
	if by := cmp.Or(textArgument(r, argEndedBy), textArgument(r, argBy)); by != "" {
		parts = append(parts, "by "+quoted(by))
	}
	return strings.Join(parts, " ")
}

func endpoints(r *tracefmt.Record, between string) string {
	return quoted(cmp.Or(textArgument(r, argLocal), "?")) + " " + between + " " + quoted(cmp.Or(textArgument(r, argRemote), "?"))
}

// peer adds up all connections with one address: a server's, or a client's together with the port that it uses.
type peer struct {
	name                                string
	count, failed, open                 uint64
	sent, received, retransmits, resets uint64
	rtt                                 time.Duration // the longest of all connections
}

type connectionTable struct {
	peers    map[string]*peer
	failures map[failureKey]uint64 // by peer and error
	other    uint64
}

// peerOf names the peer of a connection. It omits the client's port, so all connections of a client have one name.
func peerOf(r *tracefmt.Record) string {
	local, remote := textArgument(r, argLocal), textArgument(r, argRemote)
	switch textArgument(r, argRole) {
	case roleClient:
		return "to " + quoted(remote)
	case roleServer:
		host, _, err := net.SplitHostPort(remote)
		_, port, err2 := net.SplitHostPort(local)
		if err == nil && err2 == nil {
			return "from " + quoted(host) + " at :" + quoted(port)
		}
	}
	return endpoints(r, "--")
}

func (t *connectionTable) add(r *tracefmt.Record) {
	name := table.Truncate(peerOf(r), maxText)
	p := t.peers[name]
	if p == nil {
		if len(t.peers) >= maxPeers {
			t.other++
			return
		}
		p = &peer{name: name}
		t.peers[name] = p
	}
	switch r.Call {
	case callRetransmit:
		p.retransmits++
		return
	case callReset:
		p.resets++
		return
	}
	p.count++
	p.sent += numberArgument(r, argSent)
	p.received += numberArgument(r, argReceived)
	p.rtt = max(p.rtt, time.Duration(numberArgument(r, argRTT)))
	if numberArgument(r, argOpen) != 0 {
		p.open++
	}
	if !Failed(r) {
		return
	}
	p.failed++
	if key := (failureKey{name, r.Errno}); t.failures[key] > 0 || len(t.failures) < maxFailures {
		t.failures[key]++
	}
}

func (t *connectionTable) text(b *strings.Builder) {
	all := slices.SortedFunc(maps.Values(t.peers), func(a, b *peer) int { return strings.Compare(a.name, b.name) })
	if len(all) == 0 {
		return
	}
	t.top(b, "Connections, by bytes", all, func(p *peer) uint64 { return p.sent + p.received })
	retransmitting := slices.DeleteFunc(slices.Clone(all), func(p *peer) bool { return p.retransmits == 0 })
	if len(retransmitting) > 0 {
		t.top(b, "Connections, by retransmits", retransmitting, func(p *peer) uint64 { return p.retransmits })
	}
	t.failed(b)
}

func (t *connectionTable) top(b *strings.Builder, title string, all []*peer, by func(*peer) uint64) {
	slices.SortStableFunc(all, func(a, b *peer) int { return cmp.Compare(by(b), by(a)) })
	b.WriteString("\n" + title + ":\n")
	rows := [][]string{{"COUNT", "FAILED", "OPEN", "SENT", "RECEIVED", "RETRANSMITS", "RESETS", "RTT", "CONNECTION"}}
	for _, p := range all[:min(topRows, len(all))] {
		row := []string{
			number(p.count), number(p.failed), number(p.open), live.Bytes(int64(p.sent)), live.Bytes(int64(p.received)),
			number(p.retransmits), number(p.resets), "", p.name,
		}
		if p.rtt > 0 {
			row[7] = formatDuration(p.rtt)
		}
		rows = append(rows, row)
	}
	b.WriteString(table.Text("rrrrrrrrl", rows))
	writeOmitted(b, len(all)-topRows, "address", "addresses", t.other, "events of connections with other addresses")
}

func (t *connectionTable) failed(b *strings.Builder) {
	if len(t.failures) == 0 {
		return
	}
	all := slices.SortedFunc(maps.Keys(t.failures), func(x, y failureKey) int {
		return cmp.Or(cmp.Compare(t.failures[y], t.failures[x]), cmp.Compare(x.call, y.call), cmp.Compare(x.errno, y.errno))
	})
	b.WriteString("\nFailed connections:\n")
	rows := [][]string{{"COUNT", "ERROR", "CONNECTION"}}
	for _, k := range all[:min(topRows, len(all))] {
		rows = append(rows, []string{strconv.FormatUint(t.failures[k], 10), k.errno, k.call})
	}
	b.WriteString(table.Text("rll", rows))
	writeOmitted(b, len(all)-topRows, "pair of connection and error", "pairs of connection and error", 0, "")
}
