package packetview

import (
	"time"

	"github.com/sonde-operator/sonde/internal/cli/conversations"
	"github.com/sonde-operator/sonde/internal/cli/timeline"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// maxConversations limits the memory to about 100 MiB. Packets of other conversations count as Other.
	maxConversations = 1 << 16
	// maxInterfaces and maxComments limit what is kept of the descriptions in a file.
	maxInterfaces = 1 << 10
	maxComments   = 1 << 8
	maxText       = 1 << 10 // bytes of a comment or a description
)

// Series of the timeline.
const (
	SeriesPackets = iota
	SeriesBytes
	SeriesRetransmissions
	SeriesResets
	seriesCount
)

// Summary of a capture.
type Summary struct {
	// Application that wrote the file, and its comments.
	Application string
	Comments    []string
	// Interfaces in the order of the file. OtherInterfaces counts those beyond the limit.
	Interfaces      []*Interface
	OtherInterfaces int
	// OtherDropped packets are missing from those. OtherOpen of them have no statistics, and OtherLate have packets after them.
	OtherDropped         uint64
	OtherOpen, OtherLate int
	// Total counts all packets, Other those of conversations beyond the limit.
	Total, Other conversations.Count
	// First and Last packet by time; zero without any.
	First, Last time.Time
	Timeline    *timeline.Timeline
	// Truncated says that the file ends within a packet.
	Truncated bool

	// Conversations, the busiest first.
	Conversations []Conversation
	TCP           TCP
	// RTT is the initial round-trip time of all TCP connections.
	RTT  Durations
	DNS  DNS
	HTTP HTTP
}

// Interface that packets were captured at.
type Interface struct {
	// Pod is "namespace/name", and Node its node; empty if the file does not say them.
	Pod, Node         string
	Name, Description string
	Filter            string
	Captured          conversations.Count
	// Ended says that the file has the statistics of the interface. Dropped packets passed the filter between Start and
	// End, and are not in the file.
	Ended      bool
	Dropped    uint64
	Start, End time.Time
	// Late: it has packets after its statistics. These may be of an earlier file of a ring, whose last file has none.
	Late bool

	latest uint64 // time of its latest packet
}

// Conversation is the traffic between two endpoints, with what TCP tells about it.
type Conversation struct {
	*conversations.Conversation

	TCP TCP
	// RTT is the shortest initial round-trip time of its connections; zero if it is unknown.
	RTT time.Duration
}

// TCP counts connections and segments.
type TCP struct {
	Connections uint64
	// Retransmissions include the fast and the spurious ones.
	Retransmissions, Fast, Spurious, OutOfOrder, Resets uint64
}

// flow is the state of one conversation while a file is read.
type flow struct {
	conversation *conversations.Conversation
	// iface saw the conversation first. Others have copies of the same packets.
	iface *pcapng.Interface
	tcp   TCP
	rtt   time.Duration

	connection *connection
	http       *exchange
}
