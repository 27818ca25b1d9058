package carrier

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestSilentPeer: a peer that sends nothing sees that the app gives its connection up. Otherwise it would take one of the carrier's places
// for ever.
func TestSilentPeer(t *testing.T) {
	for name, abort := range map[string]bool{"end": false, "reset": true} {
		for first, send := range map[string]string{"at once": "", "after a request": get} {
			t.Run(name+" "+first, func(t *testing.T) {
				t.Parallel()
				app := func(d duplex) {
					if send != "" {
						_, _ = d.Read(make([]byte, len(send)))
						_, _ = io.WriteString(d, fromApp)
					}
					time.Sleep(100 * time.Millisecond)
					if abort {
						_ = d.(*net.TCPConn).SetLinger(0)
					}
				}
				f := start(t, app, nil, byUser("alice", "alice"))
				c := f.dial(t)
				_, _ = io.WriteString(c, send)
				if back, reset := readAll(c); back != strings.Repeat(fromApp, len(send)/len(get)) || reset {
					t.Errorf("%q comes back, reset %t", back, reset)
				}
				await(t, "the end of the connection", func() bool { return len(f.all()) == 0 })
			})
		}
	}
}
