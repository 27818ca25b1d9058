package trace

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestParseOfAConnection(t *testing.T) {
	r := traceRecord{Kind: uint8(traceKindKIND_CONNECTION)}
	f := traceTcp{Sent: 7, LocalPort: 80}
	r.Size = uint32(recordLen) + uint32(unsafe.Sizeof(f))
	whole := append(bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordLen)), unsafe.Slice((*byte)(unsafe.Pointer(&f)), unsafe.Sizeof(f))...)
	var e event
	if !e.parse(whole) || e.tcp == nil || e.tcp.Sent != 7 || e.tcp.LocalPort != 80 {
		t.Errorf("%+v", e.tcp)
	}
	for n := range whole {
		e = event{}
		if e.parse(whole[:n]) {
			t.Errorf("%d of %d bytes are a record", n, len(whole))
		}
	}
	r.Size = uint32(recordLen)
	if e.parse(unsafe.Slice((*byte)(unsafe.Pointer(&r)), recordLen)) {
		t.Error("a head is a connection")
	}
}

func TestReadSockets(t *testing.T) {
	one := func(inode uint64) []byte {
		s := traceOpenSocket{Inode: inode}
		return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s)))
	}
	b := slices.Concat(one(7), one(8), one(7))
	got, err := readSockets(bytes.NewReader(b))
	if err != nil || len(got) != 2 || got[0].Inode != 7 || got[1].Inode != 8 {
		t.Errorf("%d sockets, %v", len(got), err)
	}
	if _, err := readSockets(bytes.NewReader(b[:len(b)-1])); err == nil {
		t.Error("half a socket is one")
	}
}

func TestTitle(t *testing.T) {
	addr := func(b ...byte) (a [16]uint8) {
		copy(a[:], b)
		return a
	}
	name := func(s string) (n [112]uint8) {
		copy(n[:], sockaddr(unix.AF_UNIX, []byte(s)...))
		return n
	}
	for title, s := range map[string]traceOpenSocket{
		"tcp:10.0.0.9:443":  {Type: unix.SOCK_STREAM, T: traceTcp{Family: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Local: addr(10, 0, 0, 1), LocalPort: 4242, Remote: addr(10, 0, 0, 9), RemotePort: 443}},
		"tcp:[::]:80":       {Type: unix.SOCK_STREAM, T: traceTcp{Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP, LocalPort: 80}},
		"tcp:10.0.0.9:80":   {Type: unix.SOCK_STREAM, T: traceTcp{Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP, RemotePort: 80, Remote: addr(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9)}},
		"udp":               {Type: unix.SOCK_DGRAM, T: traceTcp{Family: unix.AF_INET, Protocol: unix.IPPROTO_UDP}},
		"udp:127.0.0.53:53": {Type: unix.SOCK_DGRAM, T: traceTcp{Family: unix.AF_INET, Protocol: unix.IPPROTO_UDP, LocalPort: 53, Local: addr(127, 0, 0, 53)}},
		"unix:/run/x":       {Type: unix.SOCK_STREAM, T: traceTcp{Family: unix.AF_UNIX}, Length: 9, Name: name("/run/x")},
		"unix:@x":           {Type: unix.SOCK_STREAM, T: traceTcp{Family: unix.AF_UNIX}, Length: 4, Name: name("\x00x")},
		"unix":              {Type: unix.SOCK_STREAM, T: traceTcp{Family: unix.AF_UNIX}},
		"netlink":           {Type: unix.SOCK_RAW, T: traceTcp{Family: unix.AF_NETLINK}},
	} {
		if got := s.title(); got != title {
			t.Errorf("%s, want %s", got, title)
		}
	}
}
