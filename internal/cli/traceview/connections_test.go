package traceview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// connectionEvent returns the line of an event of a connection.
func connectionEvent(second int, call, args string) string {
	return fmt.Sprintf(`{"time":"1970-01-01T00:00:%02dZ","call":%q,"group":"network","pid":1,"hostPid":7,"tid":1,"hostTid":7,"uid":0,"comm":"a",%s}`, second, call, args) + "\n"
}

// The table has one line for each server, and one for each client and local port. The ports of clients are ignored.
func TestConnections(t *testing.T) {
	const (
		client = `"args":{"local":"10.0.0.2:%d","remote":"10.0.0.1:443","role":"client","sent":%d,"received":%d,"rttNs":%d,"retransmits":0}`
		server = `"args":{"local":"10.0.0.2:80","remote":"10.0.0.9:%d","role":"server","sent":%d,"received":%d,"retransmits":0}`
	)
	lines := connectionEvent(1, "connection", fmt.Sprintf(client, 4001, 1000, 2000, 1_500_000)) +
		connectionEvent(2, "connection", fmt.Sprintf(client, 4002, 24, 1072, 500_000)) +
		connectionEvent(3, "connection", fmt.Sprintf(server, 5001, 5<<20, 1)) +
		connectionEvent(4, "connection", strings.Replace(fmt.Sprintf(server, 5002, 0, 0), `"sent"`, `"open":true,"sent"`, 1)) +
		connectionEvent(5, "retransmit", `"args":{"local":"10.0.0.2:4002","remote":"10.0.0.1:443","role":"client","bytes":10,"retransmits":1}`) +
		connectionEvent(6, "reset", `"args":{"local":"10.0.0.2:80","remote":"10.0.0.9:5002","role":"server","by":"remote"}`) +
		connectionEvent(7, "connection", `"args":{"local":"10.0.0.2:4003","remote":"10.0.0.3:5432","role":"client","sent":0,"received":0},"errno":"ECONNREFUSED"`) +
		connectionEvent(8, "connection", `"args":{"local":"10.0.0.2:4004","remote":"10.0.0.3:5432","role":"client","sent":0,"received":0},"errno":"ECONNREFUSED"`) +
		connectionEvent(9, "connection", `"args":{"local":"10.0.0.2:4005","remote":"10.0.0.3:5432","sent":3,"received":0}`)
	_, s := view(t, nil, NewSource("x", strings.NewReader(header("web-a")+lines)))
	want := `9 events in 8.00s: network 9.

Connections, by bytes:
COUNT  FAILED  OPEN     SENT  RECEIVED  RETRANSMITS  RESETS     RTT  CONNECTION
    2       0     1  5.0 MiB       1 B            0       1          from 10.0.0.9 at :80
    2       0     0  1.0 KiB   3.0 KiB            1       0  1.50ms  to 10.0.0.1:443
    1       0     0      3 B       0 B            0       0          10.0.0.2:4005 -- 10.0.0.3:5432
    2       2     0      0 B       0 B            0       0          to 10.0.0.3:5432

Connections, by retransmits:
COUNT  FAILED  OPEN     SENT  RECEIVED  RETRANSMITS  RESETS     RTT  CONNECTION
    2       0     0  1.0 KiB   3.0 KiB            1       0  1.50ms  to 10.0.0.1:443

Failed connections:
COUNT  ERROR         CONNECTION
    2  ECONNREFUSED  to 10.0.0.3:5432
`
	got := s.summary.Text()
	if diff := cmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// An event of a connection adds no process, because its process may be unknown or may have exited.
func TestConnectionsAreNoProcesses(t *testing.T) {
	lines := event(1, "read", "") + connectionEvent(2, "connection", `"args":{"local":"10.0.0.2:80"}`) +
		`{"time":"1970-01-01T00:00:03Z","call":"connection","group":"network","pid":0,"hostPid":0,"tid":0,"hostTid":0,"uid":0,"comm":""}` + "\n"
	_, s := view(t, nil, NewSource("x", strings.NewReader(header("web-a")+lines)))
	if n := len(s.summary.processes.all); n != 1 {
		t.Errorf("%d processes, want one:\n%s", n, s.summary.Text())
	}
}

// A target can use any number of addresses. Those beyond the limit are counted.
func TestConnectionBounds(t *testing.T) {
	s := NewSummary()
	from := NewSource("x", strings.NewReader(""))
	const further = 5
	for i := range maxPeers + further {
		s.Line(from, &tracefmt.Line{Record: &tracefmt.Record{
			Call: callConnection, Time: time.Unix(1, 0), Took: -1, Errno: "ECONNRESET",
			Args: []tracefmt.Arg{{Name: argRole, Kind: tracefmt.Text, Text: []byte(roleClient)}, {Name: argRemote, Kind: tracefmt.Text, Text: fmt.Append(nil, "h:", i)}},
		}})
	}
	if s.connections.other != further || len(s.connections.peers) != maxPeers || len(s.connections.failures) > maxFailures {
		t.Errorf("%d of %d, %d lumped together", len(s.connections.peers), len(s.connections.failures), s.connections.other)
	}
	if want := fmt.Sprintf("… and %d events of connections with other addresses, which are not listed one by one\n", further); !strings.Contains(s.Text(), want) {
		t.Errorf("the summary omits it:\n%s", s.Text())
	}
}
