package top

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// segment is a TCP segment of 10 bytes from 10.0.0.1 to 10.0.0.2.
func segment(t *testing.T, from, to layers.TCPPort, sequence uint32) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true},
		&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4},
		&layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}},
		&layers.TCP{SrcPort: from, DstPort: to, Seq: sequence}, gopacket.Payload("0123456789"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

// shown returns the table as text, without its caption.
func shown(top *Top, now time.Time) string {
	v := top.Table(now)
	return table.Text(v.Sides, v.Rows)
}

func TestConversations(t *testing.T) {
	top, counted := NewConversations()
	stream := pcapng.AppendSection(nil, &pcapng.Section{})
	stream = pcapng.AppendInterface(stream, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	add := func(from, to layers.TCPPort, sequence uint32) {
		data := segment(t, from, to, sequence)
		stream = pcapng.AppendPacket(stream, &pcapng.Packet{Time: 1, Data: data, Length: uint32(len(data))})
	}
	add(1000, 80, 1)
	add(1000, 80, 11)
	add(1000, 80, 1) // sent before
	add(2000, 90, 1<<32-5)
	add(2000, 90, 5) // sequence numbers wrap
	if err := counted.Read(bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(100, 0)
	want := `PACKETS/S  BYTES/S  TOTAL  RETRANS  PROTOCOL  A              B
        3    192 B  192 B        1  TCP       10.0.0.1:1000  10.0.0.2:80
        2    128 B  128 B        0  TCP       10.0.0.1:2000  10.0.0.2:90
`
	if diff := cmp.Diff(want, shown(top, now)); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}

	stream = stream[:0]
	stream = pcapng.AppendSection(stream, &pcapng.Section{})
	stream = pcapng.AppendInterface(stream, &pcapng.Interface{Name: "eth0", LinkType: pcapng.LinkTypeEthernet})
	add(2000, 90, 15)
	add(2000, 90, 25)
	if err := counted.Read(bytes.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, shown(top, now.Add(interval/2))); diff != "" {
		t.Errorf("table before the next sample (-want +got):\n%s", diff)
	}
	want = `PACKETS/S  BYTES/S  TOTAL  RETRANS  PROTOCOL  A              B
        1     64 B  256 B        0  TCP       10.0.0.1:2000  10.0.0.2:90
        0      0 B  192 B        1  TCP       10.0.0.1:1000  10.0.0.2:80
`
	if diff := cmp.Diff(want, shown(top, now.Add(2*time.Second))); diff != "" {
		t.Errorf("table of the next two seconds (-want +got):\n%s", diff)
	}
	top.Press('x')
	top.Press('r')
	if got := shown(top, now.Add(2*time.Second)); !strings.Contains(strings.Split(got, "\n")[1], "10.0.0.1:1000") {
		t.Errorf("not sorted by retransmissions:\n%s", got)
	}
	if err := counted.Read(strings.NewReader("no packets at all")); err == nil {
		t.Error("a stream of another format is no error")
	}
}

func TestCalls(t *testing.T) {
	top, calls := NewCalls()
	add := func(name string, took time.Duration, errno string) {
		if err := calls.Line(nil, &tracefmt.Line{Record: &tracefmt.Record{Call: name, Took: took, Errno: errno}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		add("read", 1500*time.Nanosecond, "")
	}
	add("read", 2*time.Second, "EINTR")
	add("openat", 20*time.Microsecond, "ENOENT")
	add("exec", -1, "")
	now := time.Unix(100, 0)
	want := `CALLS/S  CALLS  ERRORS      P50   MAX  CALL
      4      4       1  1.41µs    2s  read
      1      1       0       -     -  exec
      1      1       1  18.43µs  20µs  openat
`
	lines := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if diff := cmp.Diff(lines(want), lines(shown(top, now))); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	top.Press('m')
	if got := top.Table(now).Rows; got[1][5] != "read" || got[3][5] != "exec" {
		t.Errorf("not sorted by the longest: %v", got)
	}
	for n := range 2 * maxCalls {
		add(strings.Repeat("x", n), 1, "")
	}
	if n := len(top.Table(now.Add(time.Minute)).Rows); n != maxRows+1 || len(calls.calls) > maxCalls+1 {
		t.Errorf("%d rows of %d calls", n, len(calls.calls))
	}
	_ = traceview.Sink(calls)
}

// The median is exact to a quarter.
func TestMedian(t *testing.T) {
	for _, want := range []time.Duration{0, 1, 3, 5, 100, 12345, time.Hour} {
		var h histogram
		for _, d := range []time.Duration{want, 0, 1 << 62} {
			h.add(d)
		}
		if got := h.median(); got < 0.8*float64(want) || got > 1.25*float64(want) {
			t.Errorf("%v of %v", got, want)
		}
	}
}
