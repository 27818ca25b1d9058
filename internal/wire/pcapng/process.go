package pcapng

import (
	"bytes"
	"fmt"
	"strings"
)

// optCustomBinary is the code of a custom option with binary data that may be copied (draft-ietf-opsawg-pcapng, section 3.5.1).
const optCustomBinary = 2989

// enterprise is the Private Enterprise Number of the option: the one for documentation (RFC 5612), because Sonde has none of
// its own. The version that follows it tells the option from others of that number, as far as possible.
const enterprise = 32473

const (
	processVersion = 1
	commLen        = 16
	// processLen is the length of the option's fixed part, with the enterprise number.
	processLen = 4 + 4 + 3*4 + commLen
	maxShared  = 10
)

// MaxProcessLen is the most bytes that AppendProcess appends.
const MaxProcessLen = 280

// ProcessReason says why a packet has no process. The values are part of the format: new ones are added at the end.
type ProcessReason uint8

// Reasons. Packets with the first ones have no process for sure; the process of the others is not known.
const (
	ProcessKnown ProcessReason = iota
	ProcessNotIP
	ProcessNoSender
	ProcessNoReceiver
	ProcessKernel
	ProcessClosed
	ProcessOtherHost
	ProcessOutside
	ProcessUnseen
	ProcessForked
	ProcessPassed
	ProcessShared
	ProcessProtocol
	ProcessFragment
	ProcessExtension
	ProcessMulticast
	ProcessNetfilter
	ProcessBalanced
	ProcessTooMany
	ProcessEnded
	ProcessIOUring
	ProcessUnsettled
	numProcessReasons
)

// processReasons are the names of reasons in an account, and the texts of the comments.
var processReasons = [numProcessReasons]struct{ name, text string }{
	ProcessKnown:      {"known", "process"},
	ProcessNotIP:      {"notIP", "no process: not an IP packet"},
	ProcessNoSender:   {"noSender", "no process: no socket sent it"},
	ProcessNoReceiver: {"noReceiver", "no process: no socket receives it"},
	ProcessKernel:     {"kernel", "no process: the kernel sent it"},
	ProcessClosed:     {"closed", "no process: the connection is closed"},
	ProcessOtherHost:  {"otherHost", "no process: for another host"},
	ProcessOutside:    {"outside", "no process of the Pod: a process outside of it has the socket"},
	ProcessUnseen:     {"unseen", "process unknown: no known process has the socket"},
	ProcessForked:     {"forked", "process unknown: the socket's process has forked"},
	ProcessPassed:     {"passed", "process unknown: the socket was passed to another process"},
	ProcessShared:     {"shared", "process unknown: socket shared by several processes"},
	ProcessProtocol:   {"protocol", "process unknown: neither TCP nor UDP"},
	ProcessFragment:   {"fragment", "process unknown: a later fragment has no port"},
	ProcessExtension:  {"extension", "process unknown: IPv6 extension header"},
	ProcessMulticast:  {"multicast", "process unknown: sent to several receivers"},
	ProcessNetfilter:  {"netfilter", "process unknown: netfilter rules may redirect it"},
	ProcessBalanced:   {"balanced", "process unknown: a program chooses the socket"},
	ProcessTooMany:    {"tooMany", "process unknown: too many processes"},
	ProcessEnded:      {"ended", "process unknown: the socket's process ended long ago"},
	ProcessIOUring:    {"ioUring", "process unknown: a process may have the socket in an io_uring"},
	ProcessUnsettled:  {"unsettled", "process unknown: processes fork too often to look for the socket"},
}

// ProcessReasons returns all reasons but ProcessKnown.
func ProcessReasons() []ProcessReason {
	all := make([]ProcessReason, 0, numProcessReasons-1)
	for r := ProcessKnown + 1; r < numProcessReasons; r++ {
		all = append(all, r)
	}
	return all
}

// String returns the reason as in the packets' comments.
func (r ProcessReason) String() string {
	if r >= numProcessReasons {
		return fmt.Sprintf("process unknown: reason %d", uint8(r))
	}
	return processReasons[r].text
}

// Name returns the reason as in a capture's account.
func (r ProcessReason) Name() string { return processReasons[min(r, numProcessReasons-1)].name }

// NoProcess reports whether a packet with this reason has no process of the Pod for sure.
func (r ProcessReason) NoProcess() bool { return r >= ProcessNotIP && r <= ProcessOutside }

// Process is the process that a packet belongs to, or the reason why none is named. Its option is, in the section's byte order:
//
//	enterprise number  4 bytes, 32473
//	version            1 byte, 1
//	reason             1 byte, 0 if the process is known
//	zero               2 bytes
//	PID                4 bytes, in the node's PID namespace
//	inner PID          4 bytes, in the process's own PID namespace
//	UID                4 bytes, the effective user, as the node counts
//	name               16 bytes, with at least one zero at the end
//	container's name   the rest; for ProcessShared the processes' PIDs instead, 4 bytes each
type Process struct {
	Reason             ProcessReason
	PID, InnerPID, UID uint32
	// Comm is the name of the process's first thread, of at most 15 bytes. Bytes that are not printable ASCII are question marks.
	Comm      string
	Container string
	// SharedBy are PIDs of processes that share the packet's socket.
	SharedBy []uint32
}

// String returns the comment.
func (p *Process) String() string {
	switch {
	case p.Reason == ProcessShared && len(p.SharedBy) > 0:
		return "process unknown: socket shared by pids " + strings.Trim(strings.ReplaceAll(fmt.Sprint(p.SharedBy), " ", ", "), "[]")
	case p.Reason != ProcessKnown:
		return p.Reason.String()
	}
	s := fmt.Sprintf("process: %s, pid %d, uid %d", p.Comm, p.PID, p.UID)
	if p.Container != "" {
		s += ", container " + p.Container
	}
	return s
}

// AppendProcess appends a comment and the option. At most 10 of SharedBy are written.
func AppendProcess(b []byte, p *Process) []byte {
	short := *p
	short.SharedBy = p.SharedBy[:min(len(p.SharedBy), maxShared)]
	return appendProcess(appendText(b, optComment, short.String()), &short)
}

// appendProcess appends the option alone.
func appendProcess(b []byte, p *Process) []byte {
	v := make([]byte, processLen, processLen+64)
	order.PutUint32(v, enterprise)
	v[4], v[5] = processVersion, byte(p.Reason)
	order.PutUint32(v[8:], p.PID)
	order.PutUint32(v[12:], p.InnerPID)
	order.PutUint32(v[16:], p.UID)
	copy(v[20:20+commLen-1], p.Comm)
	v = append(v, p.Container...)
	for _, pid := range p.SharedBy {
		v = order.AppendUint32(v, pid)
	}
	return appendOption(b, optCustomBinary, v)
}

// parseProcess reads the option; nil if it is another one.
func (r *parser) parseProcess(v []byte) *Process {
	if len(v) < processLen || r.order.Uint32(v) != enterprise || v[4] != processVersion {
		return nil
	}
	p := &Process{
		Reason: ProcessReason(v[5]), PID: r.order.Uint32(v[8:]), InnerPID: r.order.Uint32(v[12:]), UID: r.order.Uint32(v[16:]),
	}
	comm, _, _ := bytes.Cut(v[20:20+commLen], []byte{0})
	p.Comm = string(comm)
	rest := v[processLen:]
	if p.Reason != ProcessShared {
		p.Container = string(rest)
		return p
	}
	for ; len(rest) >= 4; rest = rest[4:] {
		p.SharedBy = append(p.SharedBy, r.order.Uint32(rest))
	}
	return p
}
