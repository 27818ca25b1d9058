package processes

import (
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/sockets"
)

// A server forks for each connection, and closes it. The child answers, and does not have the connection any more when the client
// reads. As no process has it then, no scan finds it. From the answer on, no packet may name the server. The server's other socket
// has its name again after the next scan.
func TestProcessesThatForkForEachConnection(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{"the child ends": "fork-each", "the child starts another program": "fork-each-exec"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stop := w.start()
			server := uint32(w.Run(7000, w.Program, mode).Process.Pid)
			for range 10 {
				w.readLate(7000)
			}
			w.askUntilKnown(7001)
			path := stop().Path
			got := answers(t, path, 7000, server)
			t.Logf("from the answers on: %+v", got)
			if got.server > 0 || got.forked == 0 {
				t.Errorf("%d packets name the server, which has closed the connections; %d say %q", got.server, got.forked, pcapng.ProcessForked)
			}
			if s := w.Scores(path)[7001]; s.Wrong > 0 {
				t.Errorf("the server's other socket: %+v", s)
			}
		})
	}
}

// readLate asks, and reads the answer when the process that has sent it does not have the connection any more.
func (w *world) readLate(port int) {
	w.t.Helper()
	small := func(_, _ string, c syscall.RawConn) (err error) {
		return c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) })
	}
	var c net.Conn
	err := links.InNetNS(int(w.Peer.Fd()), func() (err error) {
		c, err = (&net.Dialer{Control: small}).Dial("tcp", net.JoinHostPort(podnet.TargetIP, strconv.Itoa(port)))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("a question")); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if _, err := io.Copy(io.Discard, c); err != nil {
		w.t.Error(err)
	}
}

// askUntilKnown asks until a packet of the port names its process.
func (w *world) askUntilKnown(port uint16) {
	w.t.Helper()
	var s *sockets.Score
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		w.Ask("udp", podnet.TargetIP, int(port), 1)
		if s = w.Scores(w.path)[port]; s != nil && s.Last != nil && s.Last.Reason == pcapng.ProcessKnown {
			return
		}
	}
	w.t.Errorf("port %d: the last packet has no name: %+v", port, s)
}

// answered counts packets of connections from the answer on.
type answered struct{ server, others, forked, unknown int }

func answers(t *testing.T, path string, port uint16, server uint32) (n answered) {
	t.Helper()
	const withoutData = 74 // bytes of a segment that opens a connection
	begun := map[uint16]bool{}
	sockets.EachPacket(t, path, func(p *pcapng.Packet) {
		ports, ok := sockets.PortsOf(p.Data)
		if at, _ := sockets.TargetPort(p.Data); !ok || at != port {
			return
		}
		client := ports[0] + ports[1] - port
		if p.Flags.Direction() == pcapng.Outbound && p.Length > withoutData {
			begun[client] = true
		}
		switch {
		case !begun[client]:
		case p.Process.Reason == pcapng.ProcessForked:
			n.forked++
		case p.Process.Reason != pcapng.ProcessKnown:
			n.unknown++
		case p.Process.PID == server:
			n.server++
		default:
			n.others++
		}
	})
	return n
}

// A server starts other programs all the time. They do not get its sockets, so that packets name it as long as it has them. That
// holds for connections of MPTCP, too.
func TestProcessesThatStartOthers(t *testing.T) {
	t.Parallel()
	for name, mptcp := range map[string]bool{"TCP": false, "MPTCP": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.RunGo(7000, "spawn")
			stop := w.start()
			w.awaitLast(7006, pcapng.ProcessKnown) // a scan has made the claims
			var d net.Dialer
			d.SetMultipathTCP(mptcp)
			var c net.Conn
			err := links.InNetNS(int(w.Peer.Fd()), func() (err error) {
				c, err = d.Dial("tcp", net.JoinHostPort(podnet.TargetIP, "7000"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if used, err := c.(*net.TCPConn).MultipathTCP(); err != nil || used != mptcp {
				t.Fatalf("the connection has MPTCP: %t, %v, want %t", used, err, mptcp)
			}
			b := make([]byte, 100)
			for range 400 {
				_, err := c.Write([]byte("a question"))
				if err == nil {
					_, err = c.Read(b)
				}
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Millisecond)
			}
			all := w.Scores(stop().Path)
			for _, port := range []uint16{7000, 7004, 7005, 7006, 7007, 7008, 7009} {
				if s := all[port]; s == nil || s.Wrong > 0 || s.Unknown > s.Right { // a child has the sockets for a moment
					t.Errorf("port %d: %+v", port, s)
				}
			}
			t.Log("\n" + sockets.Report(all))
		})
	}
}
