// Package links follows the network interfaces of a network namespace.
package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// Link is one network interface as rtnetlink describes it.
type Link struct {
	Index        int
	Name         string
	HardwareType uint16 // ARPHRD_*
	Flags        uint32 // IFF_*
	Peer         int    // of a veth: the index of its other end, if both are in this namespace
	Gone         bool   // the interface was deleted or left the namespace
	Moved        bool   // it is gone, because it was moved into another namespace
	Packets      uint64 // that the interface has received and sent, if the message has its statistics
	XDP          bool   // an XDP program is attached, which gets incoming packets before any capture
	L3S          bool   // an ipvlan in mode L3S: incoming packets reach its processes without passing it
	VRF          bool   // a VRF device: the kernel shows its packets to packet sockets only
	Filters      bool   // only its queueing disciplines or filters have changed; the other fields but Index and Filter are not set
	Filter       Filter // the one that has changed, if any
}

// Filter is a filter that a process has added, changed or removed (struct tcmsg of linux/rtnetlink.h).
type Filter struct {
	Parent   uint32 // the side of the interface; 0 if no filter has changed
	Priority uint16
	Handle   uint32
	Name     string // of a BPF filter
	Removed  bool
}

// Loopback reports whether each packet passes the interface twice, out and in. A tap may have any hardware type, but only the
// kernel sets this flag.
func (l *Link) Loopback() bool { return l.Flags&unix.IFF_LOOPBACK != 0 }

// Up reports whether packets can pass the interface.
func (l *Link) Up() bool { return l.Flags&unix.IFF_UP != 0 }

// Cooked reports whether a packet socket must strip the link header, because the file's link type has none.
func (l *Link) Cooked() bool { lt, _ := l.LinkType(); return lt == pcapng.LinkTypeRaw }

// Plain reports whether BPF programs see packets as the file stores them, without an extra header in front.
func (l *Link) Plain() bool {
	switch l.HardwareType {
	case unix.ARPHRD_PPP, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE, unix.ARPHRD_INFINIBAND:
		return false
	default:
		return true
	}
}

// LinkType returns the file's link type for the interface; false if none fits. The choice follows map_arphrd_to_dlt of
// libpcap's pcap-linux.c, except that IPoIB and PPP are raw IP, too.
func (l *Link) LinkType() (pcapng.LinkType, bool) {
	switch l.HardwareType {
	case unix.ARPHRD_ETHER, unix.ARPHRD_LOOPBACK:
		return pcapng.LinkTypeEthernet, true
	case unix.ARPHRD_NONE, unix.ARPHRD_RAWIP, unix.ARPHRD_PPP, unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6,
		unix.ARPHRD_SIT, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE, unix.ARPHRD_INFINIBAND:
		return pcapng.LinkTypeRaw, true
	default:
		return 0, false
	}
}

// Watch is an rtnetlink socket that lists the interfaces of a namespace and receives changes. Its methods belong to one
// goroutine.
type Watch struct {
	fd      int
	buf     []byte
	listing bool // the kernel answers a request
	again   bool // the listing is not consistent: request another one when it ends
	listed  map[int]bool
}

// NewWatch opens a watch of the calling thread's network namespace. It receives every change from then on.
func NewWatch() (*Watch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind netlink socket: %w", err), unix.Close(fd))
	}
	return &Watch{fd: fd, buf: make([]byte, 64<<10)}, nil
}

// FollowFilters also receives changes of queueing disciplines and filters from now on.
func (w *Watch) FollowFilters() error {
	if err := unix.SetsockoptInt(w.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.RTNLGRP_TC); err != nil {
		return fmt.Errorf("follow changes of filters: %w", err)
	}
	return nil
}

// FD is readable when Read has something to return.
func (w *Watch) FD() int { return w.fd }

// Close closes the socket.
func (w *Watch) Close() error { return unix.Close(w.fd) }

// request asks the kernel to list all interfaces; Read returns them.
func (w *Watch) request() error {
	const hdr, body = unix.SizeofNlMsghdr, unix.SizeofIfInfomsg
	b := make([]byte, hdr+body)
	h := (*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
	*h = unix.NlMsghdr{Len: uint32(len(b)), Type: unix.RTM_GETLINK, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: 1}
	if err := unix.Sendto(w.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask for the list of interfaces: %w", err)
	}
	w.listing, w.again, w.listed = true, false, map[int]bool{}
	return nil
}

// maxListing bounds the time of a listing. A process of the target with CAP_NET_ADMIN can interrupt each by changes, without end.
const maxListing = 5 * time.Second

// List returns all interfaces, with the changes that arrive meanwhile. It blocks until the kernel has answered, for about maxListing at
// most. If Listing reports true then, interfaces may be missing, and Read goes on with the listing.
func (w *Watch) List() ([]Link, error) {
	if err := w.request(); err != nil {
		return nil, err
	}
	return w.collect(w.Read, maxListing)
}

// collect returns the interfaces that read returns until a listing ends, or until most has passed.
func (w *Watch) collect(read func() ([]Link, bool, error), most time.Duration) ([]Link, error) {
	known := collection{}
	for end := time.Now().Add(most); ; {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("wait for the list of interfaces: %w", err)
		}
		links, done, err := read()
		if err != nil {
			return nil, err
		}
		for i := range links {
			known.add(&links[i])
		}
		if done { // what only an earlier listing had is gone
			maps.DeleteFunc(known, func(index int, _ *Link) bool { return !w.Listed(index) })
		}
		if done || !time.Now().Before(end) {
			return known.links(), nil
		}
	}
}

// collection has the last state of each interface, by its index. So a target that changes interfaces without end does not make it grow.
type collection map[int]*Link

func (c collection) add(l *Link) {
	switch {
	case l.Filters:
	case l.Gone:
		delete(c, l.Index)
	default:
		c[l.Index] = l
	}
}

// links returns the interfaces by their index, as the kernel lists them.
func (c collection) links() []Link {
	all := make([]Link, 0, len(c))
	for _, index := range slices.Sorted(maps.Keys(c)) {
		all = append(all, *c[index])
	}
	return all
}

// Read returns the interfaces in the next message, if there is one, and whether a listing ended. When the kernel had to
// drop notifications, or interfaces changed during a listing, Read requests a new listing.
func (w *Watch) Read() (links []Link, done bool, err error) {
	n, err := Receive(w.fd, w.buf, 0)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil, false, nil
	case errors.Is(err, unix.ENOBUFS) && w.listing:
		w.again = true // the kernel refuses a second request meanwhile
		return nil, false, nil
	case errors.Is(err, unix.ENOBUFS):
		return nil, false, w.request()
	case err != nil:
		return nil, false, fmt.Errorf("read interface changes: %w", err)
	}
	links, done, interrupted, err := parseLinks(w.buf[:n])
	if err != nil {
		return nil, false, err
	}
	w.again = w.again || interrupted
	for i := range links {
		if w.listing && !links[i].Gone && !links[i].Filters {
			w.listed[links[i].Index] = true
		}
	}
	if !done {
		return links, false, nil
	}
	w.listing = false
	if w.again {
		return links, false, w.request()
	}
	return links, true, nil
}

// Listed reports whether the last listing has an interface.
func (w *Watch) Listed(index int) bool { return w.listed[index] }

// Listing reports whether a listing has not ended.
func (w *Watch) Listing() bool { return w.listing }

// Bound reports whether a packet socket belongs to an interface. The kernel sets the index to -1 when the interface leaves the
// namespace, even if it comes back.
func Bound(socket int) (bool, error) {
	sa, err := unix.Getsockname(socket)
	if err != nil {
		return false, fmt.Errorf("read the address of a packet socket: %w", err)
	}
	at, ok := sa.(*unix.SockaddrLinklayer)
	return ok && at.Ifindex > 0, nil
}

// Receive reads one datagram of the kernel from a netlink socket; zero bytes if another sender sent it. A process of the
// target with CAP_NET_ADMIN can send to any netlink socket in its network namespace.
func Receive(fd int, buf []byte, flags int) (n int, err error) {
	n, from, err := unix.Recvfrom(fd, buf, flags)
	if err != nil {
		return 0, err //nolint:wrapcheck // the callers wrap it
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return 0, nil
	}
	return n, nil
}

// parseLinks reads RTM_NEWLINK and RTM_DELLINK messages (rtnetlink(7)); others are skipped. (The standard library's
// syscall.ParseNetlinkRouteAttr panics on attributes whose padding is missing.) interrupted reports that interfaces changed
// during the listing, which may lack some.
func parseLinks(b []byte) (links []Link, done, interrupted bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return links, done, interrupted, fmt.Errorf("parse netlink message: %d bytes announced, %d received", size, len(b))
		}
		typ, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size]
		interrupted = interrupted || binary.NativeEndian.Uint16(b[6:])&unix.NLM_F_DUMP_INTR != 0
		b = b[min(len(b), align4(size)):]
		switch typ {
		case unix.NLMSG_DONE:
			done = true
		case unix.NLMSG_ERROR:
			if len(body) >= 4 {
				if n := int32(binary.NativeEndian.Uint32(body)); n < 0 {
					return links, done, interrupted, fmt.Errorf("list interfaces: %w", unix.Errno(-n))
				}
			}
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if l, ok := parseLink(body); ok {
				l.Gone = typ == unix.RTM_DELLINK
				links = append(links, l)
			}
		case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER:
			if len(body) >= sizeofTcMsg {
				links = append(links, parseFilters(typ, body))
			}
		}
	}
	return links, done, interrupted, nil
}

// parseLink reads a struct ifinfomsg and its attributes.
func parseLink(b []byte) (Link, bool) {
	if len(b) < unix.SizeofIfInfomsg || b[0] != unix.AF_UNSPEC {
		return Link{}, false // with AF_BRIDGE the message is about a bridge port
	}
	l := Link{
		HardwareType: binary.NativeEndian.Uint16(b[2:]), Index: int(int32(binary.NativeEndian.Uint32(b[4:]))),
		Flags: binary.NativeEndian.Uint32(b[8:]),
	}
	var info linkInfo
	elsewhere := false
	whole := eachAttribute(b[unix.SizeofIfInfomsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.IFLA_IFNAME:
			l.Name = unix.ByteSliceToString(value)
		case unix.IFLA_LINK:
			if len(value) >= 4 {
				l.Peer = int(int32(binary.NativeEndian.Uint32(value)))
			}
		case unix.IFLA_LINK_NETNSID:
			elsewhere = true
		case unix.IFLA_NEW_NETNSID:
			l.Moved = true
		case unix.IFLA_STATS64:
			l.Packets = countPackets(value)
		case unix.IFLA_XDP:
			l.XDP = hasXDP(value)
		case unix.IFLA_LINKINFO:
			info = parseInfo(value)
		}
	})
	l.L3S, l.VRF = info.l3s(), info.kind == "vrf"
	if info.kind != "veth" || elsewhere {
		l.Peer = 0
	}
	return l, whole && l.Index > 0 && l.Name != ""
}

// countPackets reads struct rtnl_link_stats64, which begins with the packets received and sent.
func countPackets(b []byte) uint64 {
	if len(b) < 16 {
		return 0
	}
	return binary.NativeEndian.Uint64(b) + binary.NativeEndian.Uint64(b[8:])
}

// These are of linux/if_link.h.
const (
	iflaIPVLANMode = 1
	ipvlanL3S      = 2
)

// linkInfo is what IFLA_LINKINFO says of the type of an interface.
type linkInfo struct {
	kind       string
	ipvlanMode uint16 // of an ipvlan or ipvtap
}

func (i linkInfo) l3s() bool {
	return (i.kind == "ipvlan" || i.kind == "ipvtap") && i.ipvlanMode == ipvlanL3S
}

func parseInfo(b []byte) (info linkInfo) {
	eachAttribute(b, func(attribute uint16, value []byte) {
		switch attribute {
		case unix.IFLA_INFO_KIND:
			info.kind = unix.ByteSliceToString(value)
		case unix.IFLA_INFO_DATA:
			eachAttribute(value, func(attribute uint16, value []byte) {
				if attribute == iflaIPVLANMode && len(value) >= 2 {
					info.ipvlanMode = binary.NativeEndian.Uint16(value)
				}
			})
		}
	})
	return info
}

// hasXDP reads the attributes in IFLA_XDP: how a program is attached, 0 for none.
func hasXDP(b []byte) (attached bool) {
	eachAttribute(b, func(kind uint16, value []byte) {
		attached = attached || kind == unix.IFLA_XDP_ATTACHED && len(value) > 0 && value[0] != 0
	})
	return attached
}

// These are of linux/rtnetlink.h and linux/pkt_cls.h.
const (
	sizeofTcMsg = 20
	tcaKind     = 1
	tcaOptions  = 2
	tcaBPFName  = 7
)

// parseFilters reads a struct tcmsg and its attributes.
func parseFilters(typ uint16, b []byte) Link {
	l := Link{Index: int(int32(binary.NativeEndian.Uint32(b[4:]))), Filters: true}
	if typ != unix.RTM_NEWTFILTER && typ != unix.RTM_DELTFILTER {
		return l
	}
	l.Filter = Filter{
		Handle: binary.NativeEndian.Uint32(b[8:]), Parent: binary.NativeEndian.Uint32(b[12:]),
		Priority: uint16(binary.NativeEndian.Uint32(b[16:]) >> 16), Removed: typ == unix.RTM_DELTFILTER,
	}
	var kind string
	eachAttribute(b[sizeofTcMsg:], func(attribute uint16, value []byte) {
		switch {
		case attribute == tcaKind:
			kind = unix.ByteSliceToString(value)
		case attribute == tcaOptions && kind == "bpf": // the kernel writes the kind first
			eachAttribute(value, func(option uint16, value []byte) {
				if option == tcaBPFName {
					l.Filter.Name = unix.ByteSliceToString(value)
				}
			})
		}
	})
	return l
}

// eachAttribute calls visit for each attribute (struct rtattr), and reports whether all were whole.
func eachAttribute(b []byte, visit func(kind uint16, value []byte)) bool {
	const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	for len(b) >= unix.SizeofRtAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return false
		}
		visit(binary.NativeEndian.Uint16(b[2:])&^flags, b[unix.SizeofRtAttr:size])
		b = b[min(len(b), align4(size)):]
	}
	return true
}

func align4(n int) int { return (n + 3) &^ 3 }
