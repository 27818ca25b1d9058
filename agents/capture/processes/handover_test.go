package processes

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/sockets"
)

// A process binds a socket, passes it over a Unix socket and closes it. The receiver listens with it, and accepts connections. None of
// them may name the first process. After a scan they name the receiver.
func TestProcessesPassASocketThatListensLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Answers = []uint16{7000}
	stop := w.start()
	w.Run(7000, w.Program, "pass-bound")
	var s *sockets.Score
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && (s == nil || s.Right == 0); time.Sleep(50 * time.Millisecond) {
		w.Ask("tcp", podnet.TargetIP, 7000, 5)
		s = w.Scores(w.path)[7000]
	}
	if s = w.Scores(stop().Path)[7000]; s.Wrong > 0 || s.Right == 0 {
		t.Errorf("answers of the receiver: %+v", s)
	}
}

// A child sends its parent's connection over a Unix socket, closes it and starts another program. The parent has closed the connection,
// too, so that only the Unix socket keeps it open. None of its packets may name the parent.
func TestProcessesSendASocketThatIsNotReceived(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]string{
		"the same user": "in-flight", "another user sends": "in-flight-user-before", "another user starts the program": "in-flight-user-after",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var l net.Listener
			err := links.InNetNS(int(w.Peer.Fd()), func() (err error) {
				l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(podnet.PeerIP, "7000"))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			stop := w.start()
			parent := uint32(w.Run(7000, w.Program, mode).Process.Pid)
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 40 {
				if _, err := c.Write([]byte("no process reads this, and its length tells it from others")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			got, wrong := map[pcapng.ProcessReason]int{}, 0
			sockets.EachPacket(t, stop().Path, func(p *pcapng.Packet) {
				ports, ok := sockets.PortsOf(p.Data)
				if !ok || !slices.Contains(ports[:], 7000) || p.Flags.Direction() != pcapng.Inbound || p.Length < 100 {
					return
				}
				got[p.Process.Reason]++
				if p.Process.Reason == pcapng.ProcessKnown && p.Process.PID == parent {
					wrong++
				}
			})
			if wrong > 0 || got[pcapng.ProcessForked] == 0 {
				t.Errorf("%d packets name the parent, which has closed the connection; all say %v, want %q", wrong, got, pcapng.ProcessForked)
			}
		})
	}
}
