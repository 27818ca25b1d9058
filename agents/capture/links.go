package capture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// link is one network interface as rtnetlink describes it.
type link struct {
	index int
	name  string
	arp   uint16 // ARPHRD_*
	gone  bool
}

func (l *link) loopback() bool { return l.arp == unix.ARPHRD_LOOPBACK }

// cooked tells whether the socket is to take off the link header, because the file's link type has none.
func (l *link) cooked() bool { lt, _ := l.linkType(); return lt == pcapng.LinkTypeRaw }

// plain tells whether the packets of the interface begin, as programs see them, with what is to be in the file.
func (l *link) plain() bool {
	switch l.arp {
	case unix.ARPHRD_PPP, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE, unix.ARPHRD_INFINIBAND:
		return false
	default:
		return true
	}
}

// linkType returns the file's link type for the interface; false if there is none that fits. The choice follows
// map_arphrd_to_dlt of libpcap's pcap-linux.c, but IPoIB and PPP are taken as raw IP, too.
func (l *link) linkType() (pcapng.LinkType, bool) {
	switch l.arp {
	case unix.ARPHRD_ETHER, unix.ARPHRD_LOOPBACK:
		return pcapng.LinkTypeEthernet, true
	case unix.ARPHRD_NONE, unix.ARPHRD_RAWIP, unix.ARPHRD_PPP, unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6,
		unix.ARPHRD_SIT, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE, unix.ARPHRD_INFINIBAND:
		return pcapng.LinkTypeRaw, true
	default:
		return 0, false
	}
}

// linkWatch is an rtnetlink socket that lists the interfaces of a namespace and hears of changes.
type linkWatch struct {
	fd  int
	buf []byte
}

// openLinkWatch must be called in the target's network namespace. Changes are heard from then on.
func openLinkWatch() (*linkWatch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind netlink socket: %w", err), unix.Close(fd))
	}
	return &linkWatch{fd: fd, buf: make([]byte, 64<<10)}, nil
}

func (w *linkWatch) close() error { return unix.Close(w.fd) }

// request asks the kernel to list all interfaces; they arrive through read.
func (w *linkWatch) request() error {
	const hdr, body = unix.SizeofNlMsghdr, unix.SizeofIfInfomsg
	b := make([]byte, hdr+body)
	h := (*unix.NlMsghdr)(unsafe.Pointer(&b[0]))
	*h = unix.NlMsghdr{Len: uint32(len(b)), Type: unix.RTM_GETLINK, Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP, Seq: 1}
	if err := unix.Sendto(w.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask for the list of interfaces: %w", err)
	}
	return nil
}

// list waits for the answer to request and returns it, with what changed meanwhile.
func (w *linkWatch) list() ([]link, error) {
	if err := w.request(); err != nil {
		return nil, err
	}
	var all []link
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}, 1000); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("wait for the list of interfaces: %w", err)
		}
		links, done, err := w.read()
		if err != nil {
			return nil, err
		}
		all = append(all, links...)
		if done {
			return all, nil
		}
	}
}

// read returns the next message's interfaces, none if there is no message, and whether a listing ended. When the
// kernel had to drop notifications it asks for a new listing.
func (w *linkWatch) read() (links []link, done bool, err error) {
	n, _, err := unix.Recvfrom(w.fd, w.buf, 0)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil, false, nil
	case errors.Is(err, unix.ENOBUFS):
		return nil, false, w.request()
	case err != nil:
		return nil, false, fmt.Errorf("read interface changes: %w", err)
	}
	return parseLinks(w.buf[:n])
}

// parseLinks reads RTM_NEWLINK and RTM_DELLINK messages (rtnetlink(7)); others are skipped. (The standard library's
// syscall.ParseNetlinkRouteAttr panics on attributes whose padding is missing.)
func parseLinks(b []byte) (links []link, done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return links, done, fmt.Errorf("parse netlink message: %d bytes announced, %d are there", size, len(b))
		}
		typ, body := binary.NativeEndian.Uint16(b[4:]), b[unix.SizeofNlMsghdr:size]
		b = b[min(len(b), align4(size)):]
		switch typ {
		case unix.NLMSG_DONE:
			done = true
		case unix.NLMSG_ERROR:
			if len(body) >= 4 {
				if n := int32(binary.NativeEndian.Uint32(body)); n < 0 {
					return links, done, fmt.Errorf("list interfaces: %w", unix.Errno(-n))
				}
			}
		case unix.RTM_NEWLINK, unix.RTM_DELLINK:
			if l, ok := parseLink(body); ok {
				l.gone = typ == unix.RTM_DELLINK
				links = append(links, l)
			}
		}
	}
	return links, done, nil
}

// parseLink reads a struct ifinfomsg and its attributes.
func parseLink(b []byte) (link, bool) {
	if len(b) < unix.SizeofIfInfomsg || b[0] != unix.AF_UNSPEC {
		return link{}, false // with AF_BRIDGE it is about a port's place in its bridge
	}
	l := link{arp: binary.NativeEndian.Uint16(b[2:]), index: int(int32(binary.NativeEndian.Uint32(b[4:])))}
	for b = b[unix.SizeofIfInfomsg:]; len(b) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtAttr || size > len(b) {
			return link{}, false
		}
		if binary.NativeEndian.Uint16(b[2:]) == unix.IFLA_IFNAME {
			l.name = unix.ByteSliceToString(b[unix.SizeofRtAttr:size])
		}
		b = b[min(len(b), align4(size)):]
	}
	return l, l.index > 0 && l.name != ""
}

func align4(n int) int { return (n + 3) &^ 3 }
