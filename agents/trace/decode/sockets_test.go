package decode

import (
	"testing"

	"golang.org/x/sys/unix"

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
