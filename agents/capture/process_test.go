package capture

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/privileged"
	"github.com/sonde-operator/sonde/test/sockets"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// TestProcesses has programs in three languages, with sockets that are older and younger than the capture.
func TestProcesses(t *testing.T) {
	t.Parallel()
	for _, cand := range each {
		if cand.name == afPacket.name {
			continue
		}
		t.Run(cand.name, func(t *testing.T) {
			t.Parallel()
			w := sockets.New(t)
			run := func(base int) {
				w.Run(base, w.Program, "all")
				w.RunGo(base+10, "all")
				if os.Getenv(sockets.ProgramsVar) == "" {
					w.Run(base+20, "python3", "testdata/sockets.py", "all")
				}
			}
			ask := func(base int) {
				for port := base; w.PIDs[uint16(port)] != nil; port += 10 {
					w.Ask("tcp", targetIP, port, 50)
					w.Ask("tcp", targetV6, port+1, 50)
					w.Ask("udp", targetIP, port+2, 50)
					w.Ask("udp", targetV6, port+3, 50)
				}
			}
			run(7000)
			r := start(t, cand.engine(), &Config{NetNS: w.Target, Interfaces: []string{"eth0"}, Processes: w.Processes()})
			run(7100)
			for range 4 {
				ask(7000)
				ask(7100)
			}
			res := r.stop()
			if p := res.Account.Processes; p == nil || p.Message != "" {
				t.Fatalf("processes were not named: %+v", p)
			}
			path := res.Path
			all := w.Scores(path)
			for port := range w.PIDs {
				s := all[port]
				if s == nil {
					t.Errorf("port %d: no packets", port)
				} else if s.Wrong > 0 || s.Unknown*1000 > s.Right {
					t.Errorf("port %d: %d right, %d wrong, %d unknown: %v %s", port, s.Right, s.Wrong, s.Unknown, s.Reasons, s.Example)
				}
			}
			if os.Getenv(sockets.ProgramsVar) == "" {
				comments := wireshark.Run(t, "tshark", "-r", path, "-Y", "udp.port == 7002", "-T", "fields", "-e", "frame.comment")
				want := fmt.Sprintf("process: sockets, pid %d, uid 0", w.PIDs[7002][0])
				if got := strings.Count(comments, want+"\n"); got != all[7002].Right {
					t.Errorf("tshark shows %d packets of the server, want %d", got, all[7002].Right)
				}
			}
			if t.Failed() {
				t.Log("\n" + sockets.Report(all))
			}
		})
	}
}

// TestRightsForProcesses has a probe with the capabilities that each probe has.
func TestRightsForProcesses(t *testing.T) {
	t.Parallel()
	if !slices.ContainsFunc(each, func(c candidate) bool { return c.name == tcx.name }) {
		t.Skip("clsact needs NET_ADMIN, with or without processes")
	}
	n := newTestNet(t)
	keep := map[uintptr]bool{}
	for _, c := range privilege.Needed(false) {
		keep[uintptr(c.Bit)] = true
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), childBackend+"="+tcx.name, childNames+"=1")
	cmd.ExtraFiles = []*os.File{n.target}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	privileged.StartWith(t, cmd, keep)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "attached\n" {
		_ = cmd.Wait()
		t.Errorf("the capture says %q, %q, %v", line, said.String(), err)
	}
}
