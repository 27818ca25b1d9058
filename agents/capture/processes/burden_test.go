package processes

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/capture"
	"github.com/sonde-operator/sonde/agents/capture/backend"
	"github.com/sonde-operator/sonde/agents/capture/links"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/test/podnet"
	"github.com/sonde-operator/sonde/test/privileged"
	"github.com/sonde-operator/sonde/test/sockets"
)

// patient are the processes of the Pod for a capture whose scans may take long.
func (w *world) patient() *backend.Processes {
	p := w.Processes()
	p.ScanTime = time.Minute
	return p
}

// The kernel interrupts a scan after a million files of other Pods. Packets name their process nevertheless.
func TestProcessesBesideManyDescriptors(t *testing.T) {
	w := newWorld(t)
	privileged.Descriptors(t, 1_100_000)
	w.Run(7000, w.Program, "all") // the last process that a scan looks at
	stop := w.startWith("eth0", w.patient())
	w.Ask("udp", podnet.TargetIP, 7002, 20)
	if s := w.Scores(stop().Path)[7002]; s == nil || s.Right == 0 || s.Wrong+s.Unknown > 0 {
		t.Errorf("packets of a socket that is older than the capture: %+v", s)
	}
}

// Forks keep every scan from a result, so that nothing notices who takes a socket. After some seconds packets name no process, the
// account says why, and names come back when the forks end. A connection of a listener that was passed before names neither process
// meanwhile, although scans see it.
func TestProcessesThatForkOften(t *testing.T) {
	w := newWorld(t)
	privileged.Descriptors(t, 100_000) // so that a scan takes longer than the pause between two forks
	// Each process of the node is one of the Pod, so that their forks void scans, too.
	_, end := w.open("eth0", &backend.Processes{ScanTime: time.Minute})
	forks := w.RunOutside(0, w.Program, "fork-often")
	w.RunOutside(7001, w.Program, "pass-listener")
	hangUp := w.call(7001)
	w.RunOutside(7000, w.Program, "taken")
	wrong := w.keepUnsettled(7000)
	t.Logf("%d packets named the wrong process before", wrong)
	_ = forks.Process.Kill()
	_ = forks.Wait()
	w.awaitLast(7000, pcapng.ProcessKnown)
	hangUp()
	r := end()
	if s := w.Scores(w.path)[7001]; s.Wrong > 0 || s.Reasons[pcapng.ProcessPassed] == 0 {
		t.Errorf("packets of a connection whose listener was passed, which scans have seen: %+v", s)
	}
	if p := r.Account.Processes; r.Err != nil || p == nil || !strings.Contains(p.Message, "fork so often") {
		t.Errorf("%v, account %+v", r.Err, p)
	}
	if s := w.Scores(w.path)[7000]; s.Wrong != wrong {
		t.Errorf("packets name the wrong process afterwards: %+v", s)
	}
}

// keepUnsettled waits until packets of a port name no process, checks that this stays so during more scans, and returns how many packets
// named a wrong process before. The kernel can keep all processes from forking for longer than a scan takes, for example while another test
// moves a process to a cgroup. Such a scan has a result, after which packets name the right process. Then all begins again.
func (w *world) keepUnsettled(port uint16) (wrong int) {
	w.t.Helper()
	const attempts = 5
	for i := range attempts {
		w.awaitLast(port, pcapng.ProcessUnsettled)
		if w.t.Failed() {
			return wrong
		}
		before := w.Scores(w.path)[port]
		if i == 0 {
			wrong = before.Wrong
		}
		time.Sleep(5 * time.Second) // for more scans
		s := w.Scores(w.path)[port]
		if s.Wrong != wrong {
			w.t.Errorf("packets name a wrong process: %+v", s)
		}
		if s.Right == before.Right {
			return wrong
		}
	}
	w.t.Errorf("packets name a process after each of %d waits", attempts)
	return wrong
}

// call keeps a connection to a port of the target, and sends over it until the result is called.
func (w *world) call(port int) (hangUp func()) {
	w.t.Helper()
	var c net.Conn
	err := links.InNetNS(int(w.Peer.Fd()), func() (err error) {
		c, err = net.Dial("tcp", net.JoinHostPort(podnet.TargetIP, strconv.Itoa(port)))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 100); ; time.Sleep(20 * time.Millisecond) {
			if _, err := c.Write([]byte("still there")); err != nil {
				return
			}
			_, _ = c.Read(b)
		}
	}()
	hangUp = sync.OnceFunc(func() { _ = c.Close(); <-done })
	w.t.Cleanup(hangUp)
	return hangUp
}

// If a scan has no time, the capture begins without names.
func TestProcessesWithoutTimeForAScan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Processes()
	p.ScanTime = 1
	c, err := capture.New(capture.KindBPF).Open(&capture.Config{NetNS: w.Target, Dir: t.TempDir(), Base: "p", Interfaces: []string{"eth0"}, Processes: p})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if p := c.Account().Processes; p == nil || !strings.Contains(p.Message, "too many open files") {
		t.Errorf("%+v", p)
	}
}

// Processes of the Pod share more sockets than the probe has memory for. The account says so, and packets name no process if that
// was so from the beginning.
func TestProcessesWithTooManySockets(t *testing.T) {
	const descriptors, processes = 700, 100
	for name, before := range map[string]bool{"before the capture": true, "during the capture": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			share := func() {
				inherited := make([]int, descriptors)
				err := links.InNetNS(int(w.Target.Fd()), func() (err error) {
					for i := range inherited {
						if inherited[i], err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				privileged.Heirs(t, processes, inherited)
			}
			if before {
				share()
			}
			c, end := w.open("eth0", &backend.Processes{ScanTime: time.Minute})
			if !before {
				share()
			}
			const want = "more than 65536 sockets"
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if p := c.Account().Processes; p != nil && strings.Contains(p.Message, want) {
					break
				}
			}
			r := end()
			if p := r.Account.Processes; r.Err != nil || p == nil || !strings.Contains(p.Message, want) {
				t.Errorf("%v, account %+v, want %q", r.Err, p, want)
			}
		})
	}
}

// TestProcessesUnavailable has captures whose packets cannot name processes: they say why.
func TestProcessesUnavailable(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		kind      capture.Kind
		processes backend.Processes
		want      string
	}{
		"packet sockets": {capture.KindAFPacket, backend.Processes{}, "packet sockets do not show processes"},
		"no cgroup":      {capture.KindBPF, backend.Processes{Unavailable: "the Pod has no cgroup"}, "the Pod has no cgroup"},
		"another cgroup": {capture.KindBPF, backend.Processes{PID: os.Getpid(), Cgroup: 1 << 60, Level: 1}, "not in the Pod's cgroup any more"},
	} {
		t.Run(name, func(t *testing.T) {
			target, _ := podnet.New(t)
			c, err := capture.New(tc.kind).Open(&capture.Config{NetNS: target, Dir: t.TempDir(), Base: "p", Interfaces: []string{"eth0"}, Processes: &tc.processes})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			r := c.Run(ctx)
			if p := r.Account.Processes; r.Err != nil || p == nil || !strings.Contains(p.Message, tc.want) {
				t.Errorf("%v, account %+v", r.Err, p)
			}
			found := false
			sockets.EachBlock(t, r.Path, func(b pcapng.Block) {
				i, ok := b.(*pcapng.Interface)
				found = found || ok && len(i.Comments) == 1 && strings.Contains(i.Comments[0], tc.want)
			})
			if !found {
				t.Error("the description of the interface does not say it")
			}
		})
	}
}
