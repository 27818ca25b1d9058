package capture

import (
	"context"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// startNaming starts a capture whose packets name processes. The result ends it.
func startNaming(t *testing.T, w *socketWorld, cand candidate) (stop func() Result) {
	t.Helper()
	c, err := cand.engine().Open(&Config{
		NetNS: w.target, Dir: t.TempDir(), Base: "named", Interfaces: []string{"eth0"}, Processes: &backend.Processes{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan Result, 1)
	go func() { done <- c.Run(ctx) }()
	return func() Result {
		cancel()
		r := <-done
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if p := r.Account.Processes; p == nil || p.Message != "" {
			t.Fatalf("processes were not named: %+v", p)
		}
		return r
	}
}

// TestProcesses has programs in three languages, with sockets that are older and younger than the capture.
func TestProcesses(t *testing.T) {
	for _, cand := range []candidate{tcx, clsact} {
		t.Run(cand.name, func(t *testing.T) {
			w := newSocketWorld(t)
			start := func(base int) {
				w.run(base, w.program, "all")
				w.run(base+10, "python3", "testdata/sockets.py", "all")
			}
			ask := func(base int) {
				for _, port := range []int{base, base + 10} {
					w.ask("tcp", targetIP, port, 50)
					w.ask("tcp", targetV6, port+1, 50)
					w.ask("udp", targetIP, port+2, 50)
					w.ask("udp", targetV6, port+3, 50)
				}
			}
			start(7000)
			stop := startNaming(t, w, cand)
			start(7100)
			for range 10 {
				ask(7000)
				ask(7100)
			}
			all := w.scores(stop().Path)
			for port := range w.pids {
				s := all[port]
				if s == nil {
					t.Errorf("port %d: no packets", port)
				} else if s.wrong > 0 || s.unknown*1000 > s.right {
					t.Errorf("port %d: %d right, %d wrong, %d unknown: %v %s", port, s.right, s.wrong, s.unknown, s.reasons, s.example)
				}
			}
			t.Log("\n" + report(all))
		})
	}
}

// TestProcessesChangeHands has sockets that one process makes and another one uses. None of their packets may name the wrong
// one. In the end each names the right one, or says that it is shared.
func TestProcessesChangeHands(t *testing.T) {
	w := newSocketWorld(t)
	const (
		oldPass, oldFork, oldShare                                       = 7000, 7001, 7002
		pass, passListener, passAccepted, fork, share, prefork, spawning = 7100, 7101, 7102, 7103, 7104, 7105, 7106
	)
	w.answers, w.either = []uint16{passAccepted}, []uint16{prefork}
	w.run(oldPass, w.program, "pass")
	w.run(oldFork, w.program, "fork")
	w.run(oldShare, w.program, "share")
	stop := startNaming(t, w, tcx)
	w.run(pass, w.program, "pass")
	w.run(passListener, w.program, "pass-listener")
	w.run(passAccepted, w.program, "pass-accepted")
	w.run(fork, w.program, "fork")
	w.run(share, w.program, "share")
	w.run(prefork, w.program, "prefork")
	w.run(spawning, w.program, "spawn")
	for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
		for _, port := range []int{oldPass, oldFork, oldShare, pass, fork, share, spawning} {
			w.ask("udp", targetIP, port, 5)
		}
		for _, port := range []int{passListener, passAccepted, prefork} {
			w.ask("tcp", targetIP, port, 5)
		}
		time.Sleep(5 * time.Millisecond)
	}
	r := stop()
	all := w.scores(r.Path)
	t.Logf("\n%s\n%+v", report(all), r.Account.Processes)
	for port, s := range all {
		if s.wrong > 0 {
			t.Errorf("port %d: %d wrong: %s", port, s.wrong, s.example)
		}
	}
	for _, port := range []uint16{oldPass, oldFork, pass, fork, spawning} {
		if all[port].right == 0 || all[port].last.Reason != pcapng.ProcessKnown {
			t.Errorf("port %d: the last packet has %v", port, all[port].last)
		}
	}
	for _, port := range []uint16{oldShare, share, prefork} {
		if s := all[port]; port != prefork && s.right > 0 || s.reasons[pcapng.ProcessShared] == 0 {
			t.Errorf("port %d: shared by several: %v", port, s.reasons)
		}
	}
}
