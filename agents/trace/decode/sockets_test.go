package decode

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

func TestOpenSocketName(t *testing.T) {
	addr := func(b ...byte) (a [16]uint8) {
		copy(a[:], b)
		return a
	}
	name := func(s string) (n [112]uint8) {
		copy(n[:], sockaddr(unix.AF_UNIX, []byte(s)...))
		return n
	}
	for title, s := range map[string]kernel.Socket{
		"tcp:10.0.0.9:443":  {Type: unix.SOCK_STREAM, T: kernel.TCP{Family: unix.AF_INET, Protocol: unix.IPPROTO_TCP, Local: addr(10, 0, 0, 1), LocalPort: 4242, Remote: addr(10, 0, 0, 9), RemotePort: 443}},
		"tcp:[::]:80":       {Type: unix.SOCK_STREAM, T: kernel.TCP{Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP, LocalPort: 80}},
		"tcp:10.0.0.9:80":   {Type: unix.SOCK_STREAM, T: kernel.TCP{Family: unix.AF_INET6, Protocol: unix.IPPROTO_TCP, RemotePort: 80, Remote: addr(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9)}},
		"udp":               {Type: unix.SOCK_DGRAM, T: kernel.TCP{Family: unix.AF_INET, Protocol: unix.IPPROTO_UDP}},
		"udp:127.0.0.53:53": {Type: unix.SOCK_DGRAM, T: kernel.TCP{Family: unix.AF_INET, Protocol: unix.IPPROTO_UDP, LocalPort: 53, Local: addr(127, 0, 0, 53)}},
		"unix:/run/x":       {Type: unix.SOCK_STREAM, T: kernel.TCP{Family: unix.AF_UNIX}, Length: 9, Name: name("/run/x")},
		"unix:@x":           {Type: unix.SOCK_STREAM, T: kernel.TCP{Family: unix.AF_UNIX}, Length: 4, Name: name("\x00x")},
		"unix":              {Type: unix.SOCK_STREAM, T: kernel.TCP{Family: unix.AF_UNIX}},
		"netlink":           {Type: unix.SOCK_RAW, T: kernel.TCP{Family: unix.AF_NETLINK}},
	} {
		if got := openSocketName(&s); got != title {
			t.Errorf("%s, want %s", got, title)
		}
	}
}

// A server waits long for a connection, and not for the next one, which gets the same descriptor. With minLatency only the first accept
// is recorded. A slow call on the second connection does not name the first one's peer.
func TestSocketsOfSlowCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		minLatency      time.Duration
		sent, connected string
	}{
		"all calls":  {0, "tcp:10.0.0.8:4000", "tcp:10.0.0.9:80"},
		"slow calls": {time.Millisecond, "", "socket:10.0.0.9:80"},
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Config{Node: process.Finder{Root: t.TempDir()}, Calls: Calls([]Group{GroupIO, GroupNetwork}), Timed: true, MinLatency: tc.minLatency})
			call := func(number uint16, ret int64, address []byte, numbers ...uint64) string {
				e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: number, Pid: 1, Cgroup: 1, Ret: ret, Duration: uint64(time.Second)}, Address: address}
				copy(e.Numbers[:], numbers)
				return string(d.Decode(&e).Path)
			}
			call(unix.SYS_SOCKET, 3, nil, unix.AF_INET, unix.SOCK_STREAM)
			call(unix.SYS_ACCEPT4, 5, inet(4000, 10, 0, 0, 8), 3)
			if got := call(unix.SYS_SENDTO, 1, nil, 5); got != tc.sent {
				t.Errorf("a call on the descriptor has the path %q, want %q", got, tc.sent)
			}
			if got := call(unix.SYS_CONNECT, 0, inet(80, 10, 0, 0, 9), 5); got != tc.connected {
				t.Errorf("a call with an address has the path %q, want %q", got, tc.connected)
			}
		})
	}
}

// A trace of the group io alone does not record which calls open and close sockets. The socket that had a descriptor before the trace
// may have given it to another one since.
func TestSocketsWithoutTheirCalls(t *testing.T) {
	for name, tc := range map[string]struct {
		groups []Group
		want   string
	}{
		"with network": {[]Group{GroupIO, GroupNetwork}, "socket:[77]"},
		"without":      {[]Group{GroupIO}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.MkdirAll(filepath.Join(proc, "1", "fd"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("socket:[77]", filepath.Join(proc, "1", "fd", "5")); err != nil {
				t.Fatal(err)
			}
			d := New(Config{Node: process.Finder{Root: proc}, Calls: Calls(tc.groups)})
			e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: unix.SYS_SENDTO, Pid: 1, Cgroup: 1, Ret: 1}, Numbers: [6]uint64{5}}
			if got := string(d.Decode(&e).Path); got != tc.want {
				t.Errorf("path %q, want %q", got, tc.want)
			}
		})
	}
}
