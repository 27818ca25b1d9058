package trace

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Names of events of connections.
const (
	eventConnection = "connection"
	eventRetransmit = "retransmit"
	eventReset      = "reset"
)

const tcpClose = 7

// tcpStates are those of include/net/tcp_states.h in Linux.
var tcpStates = [...]string{
	"", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV",
}

// Sides of a connection.
const (
	sideLocal  = "local"
	sideRemote = "remote"
)

// describeTCP makes the record of what happened to a connection. Whose it is may not be known; nothing is asked of /proc
// for it, as its process may be long gone.
func (t *Trace) describeTCP(e *event, out *tracefmt.Record) *tracefmt.Record {
	r, f := e.record, e.tcp
	out.Group = string(GroupNetwork)
	if r.Cgroup != 0 {
		out.Container = t.resolver.container(r.Pid, r.Cgroup)
	}
	out.Args = appendEnd(out.Args, "local", f, f.Local, f.LocalPort)
	out.Args = appendEnd(out.Args, "remote", f, f.Remote, f.RemotePort)
	if role := map[traceRole]string{traceRoleROLE_CLIENT: "client", traceRoleROLE_SERVER: "server"}[traceRole(f.Role)]; role != "" {
		out.Args = append(out.Args, textArg("role", role))
	}
	switch traceKind(r.Kind) {
	case traceKindKIND_RETRANSMIT:
		out.Call = eventRetransmit
		out.Args = append(out.Args, countArg("bytes", uint64(f.Bytes)), countArg("retransmits", uint64(f.Retransmits)))
	case traceKindKIND_RESET:
		out.Call = eventReset
		out.Args = append(out.Args, textArg("by", map[traceSide]string{traceSideSIDE_LOCAL: sideLocal, traceSideSIDE_REMOTE: sideRemote}[traceSide(f.By)]))
	default:
		out.Call = eventConnection
		t.describeConnection(e, out)
	}
	if int(f.State) < len(tcpStates) {
		out.Args = append(out.Args, textArg("state", tcpStates[f.State]))
	}
	return out
}

func (t *Trace) describeConnection(e *event, out *tracefmt.Record) {
	r, f := e.record, e.tcp
	out.Args = append(out.Args, countArg("sent", f.Sent), countArg("received", f.Received), countArg("retransmits", uint64(f.Retransmits)))
	if f.Rtt > 0 {
		out.Args = append(out.Args, countArg("rttNs", uint64(f.Rtt)*125))
	}
	if f.Begun > 0 && r.Time > f.Begun {
		out.Args = append(out.Args, countArg("durationNs", r.Time-f.Begun))
	}
	if f.Error > 0 {
		out.Errno = errnoName(int64(f.Error))
	}
	if e.open {
		out.Args = append(out.Args, tracefmt.Arg{Name: "open", Kind: tracefmt.Bool, Number: 1})
		return
	}
	delete(t.open, f.flow())
	if side := endedBy(f); side != "" {
		out.Args = append(out.Args, textArg("endedBy", side))
	}
}

// endedBy tells which side ended a connection, from its last state and its socket's error; empty if neither did.
func endedBy(f *traceTcp) string {
	switch tcpStates[min(int(f.State), len(tcpStates)-1)] {
	case "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSING":
		return sideLocal
	case "CLOSE_WAIT", "LAST_ACK":
		return sideRemote
	}
	switch unix.Errno(f.Error) {
	case 0: // given up, or reset, by the process
		return sideLocal
	case unix.ECONNRESET, unix.ECONNREFUSED, unix.EPIPE:
		return sideRemote
	default:
		return ""
	}
}

func appendEnd(args []tracefmt.Arg, name string, f *traceTcp, addr [16]uint8, port uint16) []tracefmt.Arg {
	at, ok := f.end(addr, port)
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

// socketPath names the socket that a call of the group network or io is about; fd is what its descriptor is called.
func socketPath(c *call, e *event, fd string) string {
	switch c.number {
	case unix.SYS_SOCKET, unix.SYS_SOCKETPAIR:
		return socketKind(int(int32(e.numbers[0])), int(int32(e.numbers[1])), int(int32(e.numbers[2])))
	case unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_SENDTO:
		return socketName(fd, e.address)
	}
	return fd
}

// learnSocket notes what a call of the group network has changed. A connection that is being made has its name already.
func learnSocket(c *call, e *event, p *processState, located string) {
	ret := e.record.Ret
	if ret < 0 && (c.number != unix.SYS_CONNECT || ret != -int64(unix.EINPROGRESS)) {
		return
	}
	switch c.number {
	case unix.SYS_SOCKET:
		p.opened(int32(ret), located, e.numbers[1]&unix.SOCK_CLOEXEC != 0)
	case unix.SYS_SOCKETPAIR:
		if a, b, ok := pair(e.address); ok {
			p.opened(a, located, e.numbers[1]&unix.SOCK_CLOEXEC != 0)
			p.opened(b, located, e.numbers[1]&unix.SOCK_CLOEXEC != 0)
		}
	case unix.SYS_CONNECT, unix.SYS_BIND:
		fd := int32(e.numbers[0])
		p.opened(fd, located, p.files.get(fd).cloexec)
	case unix.SYS_ACCEPT:
		p.opened(int32(ret), acceptedName(located, e.address), false)
	case unix.SYS_ACCEPT4:
		p.opened(int32(ret), acceptedName(located, e.address), e.numbers[3]&unix.SOCK_CLOEXEC != 0)
	}
}

// acceptedName is what an accepted socket is called. Whoever did not ask for the other side's address is not told; those of
// Unix sockets have none, but their listener's.
func acceptedName(listener string, address []byte) string {
	if len(address) > 0 || strings.HasPrefix(listener, "unix:") {
		return socketName(listener, address)
	}
	kind, _, _ := strings.Cut(listener, ":")
	return kind
}
