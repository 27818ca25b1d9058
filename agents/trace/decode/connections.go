package decode

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const tcpClose = 7

// tcpStates are the states of TCP by number (include/net/tcp_states.h in Linux).
var tcpStates = [...]string{
	"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV",
}

// Sides of a connection.
const (
	sideLocal  = "local"
	sideRemote = "remote"
)

// decodeTCP makes the event of a connection. It does not look the process up in /proc, because that may have ended long
// ago.
func (d *Decoder) decodeTCP(e *kernel.Record, out *tracefmt.Record) *tracefmt.Record {
	r, f := e.Head, e.TCP
	out.Group = string(GroupNetwork)
	if r.Cgroup != 0 {
		out.Container, _ = d.resolver.container(r.Pid, r.Cgroup)
	}
	out.Args = appendEndpoint(out.Args, "local", f, f.Local, f.LocalPort)
	out.Args = appendEndpoint(out.Args, "remote", f, f.Remote, f.RemotePort)
	if role := map[kernel.Role]string{kernel.RoleClient: "client", kernel.RoleServer: "server"}[kernel.Role(f.Role)]; role != "" {
		out.Args = append(out.Args, textArg("role", role))
	}
	switch kernel.Kind(r.Kind) {
	case kernel.KindRetransmit:
		out.Call = EventRetransmit
		out.Args = append(out.Args, countArg("bytes", uint64(f.Bytes)), countArg("retransmits", uint64(f.Retransmits)))
	case kernel.KindReset:
		out.Call = EventReset
		out.Args = append(out.Args, textArg("by", map[kernel.Side]string{kernel.SideLocal: sideLocal, kernel.SideRemote: sideRemote}[kernel.Side(f.By)]))
	default:
		out.Call = EventConnection
		d.decodeConnection(e, out)
	}
	if int(f.State) < len(tcpStates) {
		out.Args = append(out.Args, textArg("state", tcpStates[f.State]))
	}
	return out
}

func (d *Decoder) decodeConnection(e *kernel.Record, out *tracefmt.Record) {
	r, f := e.Head, e.TCP
	out.Args = append(out.Args, countArg("sent", f.Sent), countArg("received", f.Received), countArg("retransmits", uint64(f.Retransmits)))
	if f.Rtt > 0 {
		out.Args = append(out.Args, countArg("rttNs", uint64(f.Rtt)*125))
	}
	if f.Start > 0 && r.Time > f.Start {
		out.Args = append(out.Args, countArg("durationNs", r.Time-f.Start))
	}
	if f.Error > 0 {
		out.Errno = errnoName(int64(f.Error))
	}
	if e.Open {
		out.Args = append(out.Args, tracefmt.Arg{Name: "open", Kind: tracefmt.Bool, Number: 1})
		return
	}
	delete(d.open, flowOf(f))
	if side := endedBy(f); side != "" {
		out.Args = append(out.Args, textArg("endedBy", side))
	}
}

// endedBy returns which side ended a connection, by its last state and its socket's error; empty if neither did.
func endedBy(f *kernel.TCP) string {
	switch tcpStates[min(int(f.State), len(tcpStates)-1)] {
	case "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSING":
		return sideLocal
	case "CLOSE_WAIT", "LAST_ACK":
		return sideRemote
	}
	switch unix.Errno(f.Error) {
	case 0: // abandoned or reset by the process
		return sideLocal
	case unix.ECONNRESET, unix.ECONNREFUSED, unix.EPIPE:
		return sideRemote
	default:
		return ""
	}
}

func appendEndpoint(args []tracefmt.Arg, name string, f *kernel.TCP, addr [16]uint8, port uint16) []tracefmt.Arg {
	at, ok := endpoint(f, addr, port)
	if !ok {
		return args
	}
	return append(args, textArg(name, at.String()))
}

func textArg(name, text string) tracefmt.Arg {
	return tracefmt.Arg{Name: name, Kind: tracefmt.Text, Text: []byte(text)}
}

func countArg(name string, n uint64) tracefmt.Arg {
	return tracefmt.Arg{Name: name, Kind: tracefmt.Unsigned, Number: int64(n)}
}

// socketPath names the socket of a call of the groups network and io. fd is the name of its descriptor.
func socketPath(c *Call, e *kernel.Record, fd string) string {
	switch c.Number {
	case unix.SYS_SOCKET, unix.SYS_SOCKETPAIR:
		return socketKind(int(int32(e.Numbers[0])), int(int32(e.Numbers[1])), int(int32(e.Numbers[2])))
	case unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_SENDTO:
		return socketName(fd, e.Address)
	}
	return fd
}

// trackSocket notes how a call of the group network changed descriptors. A socket that is still connecting already has
// its name. closes says that the calls that close descriptors are recorded, too.
func trackSocket(c *Call, e *kernel.Record, p *processState, located string, closes bool) {
	ret := e.Head.Ret
	if ret < 0 && (c.Number != unix.SYS_CONNECT || ret != -int64(unix.EINPROGRESS)) {
		return
	}
	opened := p.openedBy
	if closes {
		opened = p.openedFree
	}
	switch c.Number {
	case unix.SYS_SOCKET:
		opened(e, int32(ret), located, e.Numbers[1]&unix.SOCK_CLOEXEC != 0)
	case unix.SYS_SOCKETPAIR:
		if a, b, ok := pair(e.Address); ok {
			opened(e, a, located, e.Numbers[1]&unix.SOCK_CLOEXEC != 0)
			opened(e, b, located, e.Numbers[1]&unix.SOCK_CLOEXEC != 0)
		}
	case unix.SYS_CONNECT, unix.SYS_BIND:
		fd := int32(e.Numbers[0])
		p.openedBy(e, fd, located, p.files.get(fd).cloexec)
	case unix.SYS_ACCEPT:
		opened(e, int32(ret), acceptedName(located, e.Address), false)
	case unix.SYS_ACCEPT4:
		opened(e, int32(ret), acceptedName(located, e.Address), e.Numbers[3]&unix.SOCK_CLOEXEC != 0)
	}
}

// acceptedName names an accepted socket. Its address is recorded only if the process asked for it. A Unix socket has
// its listener's.
func acceptedName(listener string, address []byte) string {
	if len(address) > 0 || strings.HasPrefix(listener, "unix:") {
		return socketName(listener, address)
	}
	kind, _, _ := strings.Cut(listener, ":")
	return kind
}
