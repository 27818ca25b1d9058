package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// A process with MPTCP has a socket for each MPTCP connection. The kernel makes the TCP connections below it. The trace records each of
// these once, with its owner. That also holds where the owner decides whether it is recorded.
func TestConnectionsOfMPTCP(t *testing.T) {
	for name, tc := range map[string]struct{ ownNet, byCommand bool }{
		"network of the Pod":  {ownNet: true},
		"network of the node": {},
		"command":             {ownNet: true, byCommand: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod(t)
			workload := map[bool]string{true: "mptcp", false: "mptcp on the node"}[tc.ownNet]
			w := pod.startInteractive(t, workload, tc.ownNet)
			server := w.expect("ready")
			cfg := Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupNetwork}}
			if tc.ownNet {
				cfg.NetNS = w.netNS()
			}
			if tc.byCommand {
				cfg.Command = &kernel.Command{Name: filepath.Base(os.Args[0])}
			}
			r := start(t, &cfg)
			w.resume()
			w.expect("done")
			var got []string
			for _, l := range r.stop() {
				if l.Call != decode.EventConnection {
					continue
				}
				side := "client"
				if l.is("local", server) {
					side = "server"
				}
				got = append(got, fmt.Sprintf("%s sent=%s received=%s open=%v", side, l.arg("sent"), l.arg("received"), l.is("open", "true")))
				if l.HostPID != w.cmd.Process.Pid {
					t.Errorf("process %d, want %d: %+v", l.HostPID, w.cmd.Process.Pid, l.Args)
				}
			}
			var want []string
			for range 2 {
				want = append(want, "client sent=3 received=4 open=true", "server sent=4 received=3 open=true")
			}
			for range 4 {
				want = append(want, "client sent=5 received=7 open=false", "server sent=7 received=5 open=false")
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("connections (-want +got):\n%s", diff)
			}
			if a := r.result.Account; a.Lost()+a.Unnamed > 0 {
				t.Errorf("%+v", a)
			}
		})
	}
}
