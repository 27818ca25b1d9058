package opener

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/test/privileged"
)

// TestListens: the opener knows whether the app listens on a port, at whatever address. Its own listeners do not count.
func TestListens(t *testing.T) {
	privileged.Need(t)
	n := newTestNet(t)
	p := openPod(t, n)
	check := func(when string, port uint16, want bool) {
		t.Helper()
		if is, err := p.Listens(port); err != nil || is != want {
			t.Errorf("%s: %t, %v; want %t", when, is, err, want)
		}
	}
	check("no app", 8080, false)
	for _, address := range []string{":8080", "0.0.0.0:8080", podIP + ":8080", "[::1]:8080", "127.0.0.1:8080"} {
		var l net.Listener
		inNS(t, n.pod, func() (err error) {
			l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
			return err
		})
		check("an app at "+address, 8080, true)
		check("another port than "+address, 8081, false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		check("an app at "+address+" that has ended", 8080, false)
	}
	inNS(t, n.pod, func() error {
		bound := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			if cerr := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), "lo") }); cerr != nil {
				return cerr
			}
			return err
		}}
		l, err := bound.Listen(t.Context(), "tcp", ":8080")
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	check("an app that is bound to an interface", 8080, false)
	for _, own := range p.dialer.listeners {
		check("the carrier's listener at "+own.String(), own.Port(), false)
	}
}
