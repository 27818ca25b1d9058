package traffic

import (
	"net/netip"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Connection is a TCP connection, which was captured at its client's or its server's interface.
type Connection struct {
	Client, Server End

	file  *File
	iface uint32
	// atServer says that the interface is the server's.
	atServer bool
	// RTT is the round-trip time.
	RTT time.Duration
}

// End is one end of a Connection.
type End struct {
	Addr netip.AddrPort
	// Seq is the sequence number that is sent next.
	Seq    uint32
	Window uint16
}

// Flags of a segment.
type Flags struct{ SYN, ACK, FIN, RST, PSH bool }

// Connect returns a connection without packets. seq is the client's initial sequence number.
func (f *File) Connect(iface uint32, client, server netip.AddrPort, atServer bool, seq uint32, rtt time.Duration) *Connection {
	return &Connection{
		Client: End{client, seq, 64240}, Server: End{server, seq + 1_000_000, 65160}, file: f, iface: iface, atServer: atServer, RTT: rtt,
	}
}

// Open adds the handshake.
func (c *Connection) Open() {
	c.Segment(true, c.Client.Seq, 0, Flags{SYN: true}, nil)
	c.Client.Seq++
	c.file.Wait(c.RTT)
	c.Segment(false, c.Server.Seq, c.Client.Seq, Flags{SYN: true, ACK: true}, nil)
	c.Server.Seq++
	c.file.Wait(c.RTT / 10)
	c.Ack(true)
}

// Segment adds a segment as it is, without a change of the state.
func (c *Connection) Segment(fromClient bool, seq, ack uint32, flags Flags, payload []byte) {
	from, to := &c.Client, &c.Server
	if !fromClient {
		from, to = to, from
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(from.Addr.Port()), DstPort: layers.TCPPort(to.Addr.Port()), Seq: seq, Ack: ack, Window: from.Window,
		SYN: flags.SYN, ACK: flags.ACK, FIN: flags.FIN, RST: flags.RST, PSH: flags.PSH,
	}
	if flags.SYN {
		tcp.Options = []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}
	}
	direction := pcapng.Outbound
	if fromClient == c.atServer {
		direction = pcapng.Inbound
	}
	c.file.Frame(c.iface, direction, c.file.build(c.iface, layers.IPProtocolTCP, from.Addr.Addr(), to.Addr.Addr(), tcp, gopacket.Payload(payload)))
}

// ends returns the sender and the receiver.
func (c *Connection) ends(fromClient bool) (from, to *End) {
	if fromClient {
		return &c.Client, &c.Server
	}
	return &c.Server, &c.Client
}

// Send adds a segment with data.
func (c *Connection) Send(fromClient bool, payload []byte) {
	from, to := c.ends(fromClient)
	c.Segment(fromClient, from.Seq, to.Seq, Flags{ACK: true, PSH: true}, payload)
	from.Seq += uint32(len(payload))
}

// Lose moves the state as if a segment had been sent that was not captured.
func (c *Connection) Lose(fromClient bool, n int) {
	from, _ := c.ends(fromClient)
	from.Seq += uint32(n)
}

// Ack adds an acknowledgement of everything.
func (c *Connection) Ack(fromClient bool) {
	from, to := c.ends(fromClient)
	c.Segment(fromClient, from.Seq, to.Seq, Flags{ACK: true}, nil)
}

// Close ends the connection, from the client.
func (c *Connection) Close() {
	for _, fromClient := range []bool{true, false} {
		from, to := c.ends(fromClient)
		c.Segment(fromClient, from.Seq, to.Seq, Flags{FIN: true, ACK: true}, nil)
		from.Seq++
		c.file.Wait(c.RTT)
	}
	c.Ack(true)
}

// Reset ends the connection with an RST.
func (c *Connection) Reset(fromClient bool) {
	from, to := c.ends(fromClient)
	c.Segment(fromClient, from.Seq, to.Seq, Flags{RST: true, ACK: true}, nil)
}

// Exchange adds an HTTP request, its response after a time, and an acknowledgement. Each of the parts of the response is a
// segment.
func (c *Connection) Exchange(request string, took time.Duration, response ...string) {
	c.Send(true, []byte(request))
	c.file.Wait(took)
	for _, part := range response {
		c.Send(false, []byte(part))
		c.file.Wait(c.RTT / 10)
	}
	c.Ack(true)
	c.file.Wait(c.RTT / 10)
}
