package processes

import (
	"fmt"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/sockets"
)

// says counts the packets to a port of the target by what they say.
func (w *world) says(path string, from, to uint16) map[string]int {
	w.t.Helper()
	got := map[string]int{}
	sockets.EachPacket(w.t, path, func(p *pcapng.Packet) {
		ports, ok := sockets.PortsOf(p.Data)
		if !ok || p.Flags.Direction() != pcapng.Inbound || ports[1] != to || from != 0 && ports[0] != from {
			return
		}
		what := p.Process.Reason.Name()
		if p.Process.Reason == pcapng.ProcessKnown {
			what = fmt.Sprint("pid ", p.Process.PID)
		}
		got[what]++
	})
	return got
}

// Two processes have UDP sockets at one address, in ways that the sockets' own options do not show. One is connected to the peer. Packets
// from there name its process, also just after packets that the other one receives.
func TestProcessesWithSocketsAtOneAddress(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]string{
		"SO_REUSEADDR was cleared": "a", "SO_REUSEPORT was cleared": "p", "SO_BINDTODEVICE was cleared": "d",
		"another address before": "c",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			stop := w.start()
			w.Run(7000, w.Program, "beside-"+how)
			other, connected := w.PIDs[7000][0], w.PIDs[7000][1]
			for range 100 {
				w.Ask("udp", podnet.TargetIP, 7000, 1) // which the programs could remember
				time.Sleep(5 * time.Millisecond)
			}
			path := stop().Path
			got, others := w.says(path, 9000, 7000), w.says(path, 0, 7000)
			if n := got[fmt.Sprint("pid ", other)]; n > 0 || got[fmt.Sprint("pid ", connected)] == 0 {
				t.Errorf("packets that only process %d receives: %v", connected, got)
			}
			if others[fmt.Sprint("pid ", other)] == 0 {
				t.Errorf("no packet names the other process, %d: %v", other, others)
			}
		})
	}
}
