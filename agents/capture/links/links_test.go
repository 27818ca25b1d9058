package links

import (
	"encoding/binary"
	"fmt"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// netlinkMessage builds one rtnetlink link message.
func netlinkMessage(typ uint16, family byte, arp uint16, index int32, name string) []byte {
	attr := append([]byte(name), 0)
	body := make([]byte, unix.SizeofIfInfomsg)
	body[0] = family
	binary.NativeEndian.PutUint16(body[2:], arp)
	binary.NativeEndian.PutUint32(body[4:], uint32(index))
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(attr)))
	body = binary.NativeEndian.AppendUint16(body, unix.IFLA_IFNAME)
	body = append(body, attr...)
	body = append(body, make([]byte, -len(body)&3)...)
	head := make([]byte, unix.SizeofNlMsghdr)
	*(*unix.NlMsghdr)(unsafe.Pointer(&head[0])) = unix.NlMsghdr{Len: uint32(len(head) + len(body)), Type: typ}
	return append(head, body...)
}

func TestParseLinks(t *testing.T) {
	b := netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0")
	b = append(b, netlinkMessage(unix.RTM_NEWLINK, unix.AF_BRIDGE, unix.ARPHRD_ETHER, 2, "eth0")...)
	b = append(b, netlinkMessage(unix.RTM_DELLINK, unix.AF_UNSPEC, unix.ARPHRD_NONE, 3, "tun0")...)
	b = append(b, netlinkMessage(unix.RTM_NEWADDR, unix.AF_UNSPEC, 1, 4, "x")...)
	b = append(b, netlinkMessage(unix.NLMSG_DONE, 0, 0, 0, "")...)
	links, done, interrupted, err := parseLinks(b)
	want := "[{2 eth0 1 0 false false false} {3 tun0 65534 0 true false false}]"
	if got := fmt.Sprint(links); err != nil || !done || interrupted || got != want {
		t.Errorf("links %s, done %v, interrupted %v, error %v; want %s", got, done, interrupted, err, want)
	}
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_MULTI|unix.NLM_F_DUMP_INTR)
	if _, _, interrupted, err = parseLinks(b); err != nil || !interrupted {
		t.Errorf("with NLM_F_DUMP_INTR: interrupted %v, error %v", interrupted, err)
	}
}

func FuzzParseLinks(f *testing.F) {
	f.Add(netlinkMessage(unix.RTM_NEWLINK, unix.AF_UNSPEC, unix.ARPHRD_ETHER, 2, "eth0"))
	f.Add(netlinkMessage(unix.NLMSG_ERROR, 1, 0xffff, -1, "x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		links, _, _, _ := parseLinks(b)
		for _, l := range links {
			if l.Index <= 0 || l.Name == "" {
				t.Errorf("accepted %+v", l)
			}
		}
	})
}
