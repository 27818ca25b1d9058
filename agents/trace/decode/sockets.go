package decode

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// flow is a connection by its two ends.
type flow struct {
	local, remote         [16]uint8
	localPort, remotePort uint16
}

func flowOf(t *kernel.TCP) flow { return flow{t.Local, t.Remote, t.LocalPort, t.RemotePort} }

// endpoint is one end of a connection; false where it has no address.
func endpoint(t *kernel.TCP, addr [16]uint8, port uint16) (netip.AddrPort, bool) {
	at := netip.AddrFrom16(addr).Unmap()
	if t.Family == unix.AF_INET {
		at = netip.AddrFrom4([4]byte(addr[:4]))
	}
	return netip.AddrPortFrom(at, port), port != 0 || !at.IsUnspecified()
}

// AddSockets names the sockets that were open before the trace: /proc has only their numbers.
func (d *Decoder) AddSockets(all []*kernel.Socket) {
	for _, s := range all {
		d.resolver.sockets["socket:["+strconv.FormatUint(s.Inode, 10)+"]"] = openSocketName(s)
	}
}

// openSocketName names a socket by the remote address, or else by its own.
func openSocketName(s *kernel.Socket) string {
	kind := socketKind(int(s.T.Family), int(s.Type), int(s.T.Protocol))
	switch s.T.Family {
	case unix.AF_UNIX:
		return socketName(kind, s.Name[:min(int(s.Length), len(s.Name))])
	case unix.AF_INET, unix.AF_INET6:
		if at, ok := endpoint(&s.T, s.T.Remote, s.T.RemotePort); ok {
			return kind + ":" + at.String()
		}
		if at, ok := endpoint(&s.T, s.T.Local, s.T.LocalPort); ok {
			return kind + ":" + at.String()
		}
	}
	return kind
}

// IsConnection reports whether a socket is one side of a TCP connection that is open.
func IsConnection(s *kernel.Socket) bool {
	_, connected := endpoint(&s.T, s.T.Remote, s.T.RemotePort)
	inet := s.T.Family == unix.AF_INET || s.T.Family == unix.AF_INET6
	tcp := s.T.Protocol == unix.IPPROTO_TCP || s.T.Protocol == unix.IPPROTO_MPTCP
	return connected && inet && tcp && s.T.State != tcpClose
}

// AddOpenConnections notes the connections that are open at the end of the trace. Records of their end, which Decode still
// gets, remove them; the others are StillOpen.
func (d *Decoder) AddOpenConnections(all []*kernel.Socket) {
	d.open = make(map[flow]*kernel.Socket, len(all))
	for _, s := range all {
		d.open[flowOf(&s.T)] = s
	}
}

// StillOpen returns records of the open connections that have not ended, at a time in nanoseconds since boot.
func (d *Decoder) StillOpen(now uint64) []kernel.Record {
	var left []*kernel.Socket
	for _, s := range d.open {
		left = append(left, s)
	}
	slices.SortFunc(left, func(a, b *kernel.Socket) int { return cmp.Compare(a.Inode, b.Inode) })
	records := make([]kernel.Record, 0, len(left))
	for _, s := range left {
		s.R.Time, s.R.Kind = now, uint8(kernel.KindConnection)
		records = append(records, kernel.Record{Head: &s.R, TCP: &s.T, Open: true})
	}
	return records
}
