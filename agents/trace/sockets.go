package trace

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// maxSockets bounds how many sockets that were open before the trace have names, and how many are told of at its end.
const maxSockets = 1 << 14

// flow is a connection by its two ends.
type flow struct {
	local, remote         [16]uint8
	localPort, remotePort uint16
}

func (f *traceTcp) flow() flow { return flow{f.Local, f.Remote, f.LocalPort, f.RemotePort} }

// end of a connection; false where there is none.
func (f *traceTcp) end(addr [16]uint8, port uint16) (netip.AddrPort, bool) {
	at := netip.AddrFrom16(addr).Unmap()
	if f.Family == unix.AF_INET {
		at = netip.AddrFrom4([4]byte(addr[:4]))
	}
	return netip.AddrPortFrom(at, port), port != 0 || !at.IsUnspecified()
}

// openSockets returns the sockets that the Pod's processes have open, each once; the kernel notes whose they are.
func (t *Trace) openSockets() ([]*traceOpenSocket, error) {
	l, err := link.AttachIter(link.IterOptions{Program: t.program.objects.Programs[traceProgSondeSockets]})
	if err != nil {
		return nil, fmt.Errorf("attach the iterator of sockets: %w", err)
	}
	defer l.Close()
	r, err := l.Open()
	if err != nil {
		return nil, fmt.Errorf("read sockets: %w", err)
	}
	defer r.Close()
	return readSockets(bufio.NewReaderSize(r, 64<<10))
}

func readSockets(r io.Reader) ([]*traceOpenSocket, error) {
	var all []*traceOpenSocket
	seen := map[uint64]bool{}
	for {
		s := &traceOpenSocket{}
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s)))
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read sockets: %w", err)
		}
		if !seen[s.Inode] && len(all) < maxSockets {
			seen[s.Inode] = true
			all = append(all, s)
		}
	}
}

// nameSockets names those that are there before the trace: /proc has no more than their numbers.
func (t *Trace) nameSockets() error {
	all, err := t.openSockets()
	if err != nil {
		return err
	}
	for _, s := range all {
		t.resolver.sockets["socket:["+strconv.FormatUint(s.Inode, 10)+"]"] = s.title()
	}
	return nil
}

// title is the socket's name: with the address of the other side, or else with its own.
func (s *traceOpenSocket) title() string {
	kind := socketKind(int(s.T.Family), int(s.Type), int(s.T.Protocol))
	switch s.T.Family {
	case unix.AF_UNIX:
		return socketName(kind, s.Name[:min(int(s.Length), len(s.Name))])
	case unix.AF_INET, unix.AF_INET6:
		if at, ok := s.T.end(s.T.Remote, s.T.RemotePort); ok {
			return kind + ":" + at.String()
		}
		if at, ok := s.T.end(s.T.Local, s.T.LocalPort); ok {
			return kind + ":" + at.String()
		}
	}
	return kind
}

// findOpen looks for connections that do not end before the trace does.
func (t *Trace) findOpen() error {
	if !t.cfg.network() || t.end != "" {
		return nil
	}
	all, err := t.openSockets()
	if err != nil {
		return err
	}
	t.open = map[flow]*traceOpenSocket{}
	for _, s := range all {
		_, connected := s.T.end(s.T.Remote, s.T.RemotePort)
		inet := s.T.Family == unix.AF_INET || s.T.Family == unix.AF_INET6
		if connected && inet && s.T.Protocol == unix.IPPROTO_TCP && s.T.State != tcpClose {
			t.open[s.T.flow()] = s
		}
	}
	return nil
}

// writeOpen tells of the connections that have not ended meanwhile.
func (t *Trace) writeOpen() {
	var left []*traceOpenSocket
	for _, s := range t.open {
		left = append(left, s)
	}
	slices.SortFunc(left, func(a, b *traceOpenSocket) int { return cmp.Compare(a.Inode, b.Inode) })
	now := bootTime()
	for _, s := range left {
		s.R.Time, s.R.Kind = now, uint8(traceKindKIND_CONNECTION)
		t.write(&event{record: &s.R, tcp: &s.T, open: true})
	}
	t.release(math.MaxUint64)
	t.flushAll()
}
