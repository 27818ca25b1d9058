package decode

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// sockaddr is an address as a process has it in its memory.
func sockaddr(family uint16, rest ...byte) []byte {
	return append(binary.NativeEndian.AppendUint16(nil, family), rest...)
}

func inet(port uint16, a, b, c, d byte) []byte {
	return append(binary.BigEndian.AppendUint16(sockaddr(unix.AF_INET), port), a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0)
}

// inet6 returns an address with these first and last two bytes, and its scope.
func inet6(port, first, last uint16, scope uint32, between ...byte) []byte {
	b := binary.BigEndian.AppendUint16(sockaddr(unix.AF_INET6), port)
	b = append(b, 0, 0, 0, 0) // flow
	b = binary.BigEndian.AppendUint16(b, first)
	b = append(b, append(make([]byte, 12-len(between)), between...)...)
	b = binary.BigEndian.AppendUint16(b, last)
	return binary.NativeEndian.AppendUint32(b, scope)
}

func TestAddressText(t *testing.T) {
	for name, tc := range map[string]struct {
		address []byte
		want    string
	}{
		"IPv4":                    {inet(443, 10, 0, 0, 1), "10.0.0.1:443"},
		"IPv4, any":               {inet(0, 0, 0, 0, 0), "0.0.0.0:0"},
		"IPv4, without padding":   {inet(65535, 255, 255, 255, 255)[:8], "255.255.255.255:65535"},
		"IPv4, longer":            {append(inet(53, 127, 0, 0, 1), make([]byte, 112)...), "127.0.0.1:53"},
		"IPv4, cut off":           {inet(443, 10, 0, 0, 1)[:7], malformed},
		"IPv6":                    {inet6(80, 0xfe80, 1, 0), "[fe80::1]:80"},
		"IPv6 with a scope":       {inet6(80, 0xfe80, 1, 2), "[fe80::1%2]:80"},
		"IPv6 without its scope":  {inet6(80, 0xfe80, 1, 2)[:24], "[fe80::1]:80"},
		"IPv6, a piece of it":     {inet6(80, 0xfe80, 1, 2)[:27], "[fe80::1]:80"},
		"IPv6, cut off":           {inet6(80, 0xfe80, 1, 2)[:23], malformed},
		"IPv6, half":              {inet6(80, 0xfe80, 1, 2)[:9], malformed},
		"IPv4 as IPv6":            {inet6(80, 0, 0x0001, 0, 0xff, 0xff, 10, 0), "[::ffff:10.0.0.1]:80"},
		"IPv6, any":               {inet6(0, 0, 0, 0), "[::]:0"},
		"a path":                  {sockaddr(unix.AF_UNIX, []byte("/run/x.sock\x00garbage")...), "unix:/run/x.sock"},
		"a path without its zero": {sockaddr(unix.AF_UNIX, []byte("/run/x.sock")...), "unix:/run/x.sock"},
		"a path from here":        {sockaddr(unix.AF_UNIX, []byte("x\x00")...), "unix:x"},
		"a long path":             {sockaddr(unix.AF_UNIX, []byte(strings.Repeat("x", 126))...), "unix:" + strings.Repeat("x", 126)},
		"an odd path":             {sockaddr(unix.AF_UNIX, '/', 0xff, '\n', 0), "unix:/\xff\n"},
		"abstract":                {sockaddr(unix.AF_UNIX, []byte("\x00docker\x00x")...), "unix:@docker\x00x"},
		"without a name":          {sockaddr(unix.AF_UNIX), "unix:"},
		"an empty name":           {sockaddr(unix.AF_UNIX, 0), "unix:"},
		"netlink":                 {sockaddr(unix.AF_NETLINK, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0), "netlink"},
		"packet":                  {sockaddr(unix.AF_PACKET, 0, 3), "packet"},
		"a virtual machine's":     {append(sockaddr(unix.AF_VSOCK, 0, 0), binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, 1024), 2)...), "vsock:2:1024"},
		"vsock, cut off":          {sockaddr(unix.AF_VSOCK, 0, 0, 1), malformed},
		"none":                    {sockaddr(unix.AF_UNSPEC, 1, 2, 3), "unspecified"},
		"no such family":          {sockaddr(65535, 1, 2, 3), "family 65535"},
		"a byte":                  {[]byte{2}, malformed},
		"nothing":                 {nil, malformed},
	} {
		t.Run(name, func(t *testing.T) {
			if got := addressText(tc.address); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// Any bytes that a process passes as an address have a text and a name.
func FuzzAddress(f *testing.F) {
	f.Add(inet(443, 10, 0, 0, 1), "tcp")
	f.Add(inet6(80, 0xfe80, 1, 2), "tcp:[::]:0")
	f.Add(sockaddr(unix.AF_UNIX, 0, 'x'), "")
	f.Add(sockaddr(unix.AF_VSOCK), "socket:[7]")
	f.Fuzz(func(t *testing.T, b []byte, current string) {
		b = b[:min(len(b), 128)]
		if got := addressText(b); got == "" || len(got) > 200 {
			t.Errorf("%q", got)
		}
		if len(b) > 2 && binary.NativeEndian.Uint16(b) != unix.AF_UNIX && !utf8.ValidString(addressText(b)) {
			t.Errorf("%q is not valid text", addressText(b))
		}
		if len(b) < 2 && socketName(current, b) != current {
			t.Errorf("%q becomes %q by no address", current, socketName(current, b))
		}
	})
}

func TestSocketKind(t *testing.T) {
	for name, tc := range map[string]struct {
		family, typ, protocol int
		want                  string
	}{
		"a stream":            {unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK, 0, "tcp"},
		"a stream of IPv6":    {unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP, "tcp"},
		"datagrams":           {unix.AF_INET, unix.SOCK_DGRAM, 0, "udp"},
		"ping":                {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP, "icmp"},
		"ping of IPv6":        {unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6, "icmp"},
		"several paths":       {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, "mptcp"},
		"SCTP":                {unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP, "sctp"},
		"raw":                 {unix.AF_INET, unix.SOCK_RAW, 255, "raw"},
		"a Unix socket":       {unix.AF_UNIX, unix.SOCK_SEQPACKET, 0, "unix"},
		"routes":              {unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, "netlink"},
		"the kernel's crypto": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0, "alg"},
		"nonsense":            {-1, -1, -1, "family -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := socketKind(tc.family, tc.typ, tc.protocol); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestSocketName(t *testing.T) {
	for name, tc := range map[string]struct {
		current string
		address []byte
		want    string
	}{
		"a new one":              {"tcp", inet(443, 10, 0, 0, 1), "tcp:10.0.0.1:443"},
		"one that was bound":     {"udp:0.0.0.0:53", inet(443, 10, 0, 0, 1), "udp:10.0.0.1:443"},
		"IPv4 over IPv6":         {"tcp", inet6(80, 0, 0x0001, 0, 0xff, 0xff, 10, 0), "tcp:10.0.0.1:80"},
		"open before the trace":  {"socket:[4711]", inet6(80, 0xfe80, 1, 0), "socket:[fe80::1]:80"},
		"unknown kind":           {"", inet(443, 10, 0, 0, 1), "socket:10.0.0.1:443"},
		"a path":                 {"unix", sockaddr(unix.AF_UNIX, []byte("/run/x\x00")...), "unix:/run/x"},
		"a client without one":   {"unix:/run/x", sockaddr(unix.AF_UNIX), "unix:/run/x"},
		"a dissolved connection": {"udp:10.0.0.1:443", sockaddr(unix.AF_UNSPEC), "udp"},
		"malformed":              {"tcp:10.0.0.1:443", inet(1, 1, 1, 1, 1)[:5], "tcp:10.0.0.1:443"},
		"no address":             {"tcp", nil, "tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := socketName(tc.current, tc.address); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestAcceptedName(t *testing.T) {
	for name, tc := range map[string]struct {
		listener string
		address  []byte
		want     string
	}{
		"TCP":                    {"tcp:0.0.0.0:80", inet(4242, 10, 0, 0, 1), "tcp:10.0.0.1:4242"},
		"TCP, no address":        {"tcp:0.0.0.0:80", nil, "tcp"},
		"a Unix socket":          {"unix:/run/x", sockaddr(unix.AF_UNIX), "unix:/run/x"},
		"a Unix socket, unasked": {"unix:/run/x", nil, "unix:/run/x"},
		"unknown kind":           {"", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := acceptedName(tc.listener, tc.address); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// The last state and the error of a connection say which side ended it.
func TestEndedBy(t *testing.T) {
	const (
		established, synSent, synRecv, finWait1, finWait2, closeWait, lastAck, closing = 1, 2, 3, 4, 5, 8, 9, 11
	)
	for name, tc := range map[string]struct {
		state uint8
		err   unix.Errno
		want  string
	}{
		"closed here first":         {finWait2, 0, sideLocal},
		"closed here, then reset":   {finWait1, unix.ECONNRESET, sideLocal},
		"both at once":              {closing, 0, sideLocal},
		"closed there first":        {lastAck, 0, sideRemote},
		"closed there, then a RST":  {closeWait, unix.EPIPE, sideRemote},
		"reset here":                {established, 0, sideLocal},
		"reset there":               {established, unix.ECONNRESET, sideRemote},
		"no answer any more":        {established, unix.ETIMEDOUT, ""},
		"refused":                   {synSent, unix.ECONNREFUSED, sideRemote},
		"given up":                  {synSent, 0, sideLocal},
		"no answer":                 {synSent, unix.ETIMEDOUT, ""},
		"the network refuses":       {synSent, unix.EHOSTUNREACH, ""},
		"reset before it was there": {synRecv, unix.ECONNRESET, sideRemote},
		"a state of later kernels":  {200, unix.ETIMEDOUT, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := endedBy(&kernel.TCP{State: tc.state, Error: int32(tc.err)}); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
