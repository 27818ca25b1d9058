package opener

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/handover"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
	"github.com/sonde-operator/sonde/test/privileged"
)

// TestSteer runs an opener and a carrier, as processes of their own users, in each privilege setting.
func TestSteer(t *testing.T) {
	privileged.Need(t)
	cases := map[string]func(*world){
		"each address":            steersEachAddress,
		"established connections": leavesEstablished,
		"app restarted":           followsRestart,
		"behind a mesh":           steersBehindMesh,
		"dials":                   dialsTheApp,
		"carrier killed":          survivesCarrier,
		"carrier frozen":          survivesFreeze,
		"opener killed":           survivesOpener,
		"opener frozen":           survivesFrozenOpener,
		"opener stopped":          stops,
		"opener stopped alone":    stopsAlone,
		"Pod gone":                endsWithPod,
	}
	for setting, keep := range settings(t) {
		for name, test := range cases {
			t.Run(string(setting)+"/"+name, func(t *testing.T) { test(newWorld(t, keep)) })
		}
	}
}

// clients are the ways to the app's port: from its node, and in the Pod.
func (w *world) clients() map[string]*os.File {
	return map[string]*os.File{
		podIP: w.node, "[" + podV6 + "]": w.node, "127.0.0.1": w.pod, "[::1]": w.pod, podIP + "%own": w.pod, "[" + podV6 + "]%own": w.pod,
	}
}

func steersEachAddress(w *world) {
	t := w.t
	eachAnswers := func(name, port, want string) {
		t.Helper()
		for host, ns := range w.clients() {
			address := strings.TrimSuffix(host, "%own") + ":" + port
			if got := ask(ns, address); !strings.HasPrefix(got, want+" "+address+" ") {
				t.Errorf("%s: %s answers %q, want %s", name, host, got, want)
			}
		}
	}
	eachAnswers("before", appPort, "APP")
	w.steered()
	eachAnswers("steered", appPort, "CARRIER")
	eachAnswers("steered, other port", otherPort, "OTHER")
	w.steer(true) // again
	w.steer(false)
	eachAnswers("after", appPort, "APP")
	w.steer(false) // again
}

func leavesEstablished(w *world) {
	t := w.t
	c, err := connectFrom(w.node, podIP+":"+appPort)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w.steered()
	if got := said(question(c)); !strings.HasPrefix(got, "APP ") {
		t.Errorf("a connection from before is answered %q", got)
	}
	steered, err := connectFrom(w.node, podIP+":"+appPort)
	if err != nil {
		t.Fatal(err)
	}
	defer steered.Close()
	w.steer(false)
	if got := said(question(steered)); !strings.HasPrefix(got, "CARRIER ") {
		t.Errorf("a connection of the carrier is answered %q after steering", got)
	}
}

func followsRestart(w *world) {
	t := w.t
	w.steered()
	if err := w.apps.Close(); err != nil {
		t.Fatal(err)
	}
	answers(t, w.node, podIP+":"+appPort, "CARRIER")
	w.app(t, "RESTARTED", appPort)
	answers(t, w.node, podIP+":"+appPort, "CARRIER")
	if got := w.tell("dial 127.0.0.1:" + appPort); !strings.HasPrefix(got, "RESTARTED") {
		t.Errorf("dial of a restarted app: %s", got)
	}
	w.steer(false)
	answers(t, w.node, podIP+":"+appPort, "RESTARTED")
}

// steersBehindMesh redirects the port as a mesh does: to a proxy, which connects to the app at loopback.
func steersBehindMesh(w *world) {
	t := w.t
	var proxy net.Listener
	inNS(t, w.pod, func() (err error) {
		proxy, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":"+meshPort)
		return err
	})
	defer proxy.Close()
	go func() {
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			go w.proxy(c)
		}
	}()
	address := podIP + ":" + appPort
	if _, err := exec.LookPath("nft"); err == nil {
		inNS(t, w.pod, func() error {
			rules := exec.Command("nft", "-f", "-")
			rules.Stdin = strings.NewReader("table ip mesh {\n chain in { type nat hook prerouting priority dstnat; tcp dport " +
				appPort + " redirect to :" + meshPort + "; }\n}\n")
			out, err := rules.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
	} else {
		address = podIP + ":" + meshPort // where the redirect would lead (hack/vm has no nft)
	}
	answers(t, w.node, address, "MESH APP")
	w.steer(true)
	answers(t, w.node, address, "MESH CARRIER")
	if got := w.tell("dial 127.0.0.1:" + appPort); !strings.HasPrefix(got, "APP") {
		t.Errorf("dial: %s", got)
	}
	w.signal(w.carrier, syscall.SIGKILL)
	answers(t, w.node, address, "MESH APP")
}

// proxy answers one line as the app does behind it.
func (w *world) proxy(c net.Conn) {
	defer c.Close()
	if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
		return
	}
	_, _ = io.WriteString(c, "MESH "+ask(w.pod, "127.0.0.1:"+appPort)+"\n")
}

func dialsTheApp(w *world) {
	t := w.t
	w.steered()
	for _, to := range []string{"127.0.0.1", "[::1]", podIP, "[" + podV6 + "]"} {
		got := w.tell("dial " + to + ":" + appPort)
		// From the same address: an app that trusts loopback must not trust who came from elsewhere.
		if want := "APP " + to + ":" + appPort + " from " + to + ":"; !strings.HasPrefix(got, want) {
			t.Errorf("dial %s: %q, want %q", to, got, want)
		}
	}
	for listener := range strings.FieldsSeq(w.tell("listeners")) {
		if got := w.tell("dial " + listener); !strings.Contains(got, "connection refused") {
			t.Errorf("dial of the carrier's own listener: %s", got)
		}
	}
	for to, want := range map[string]string{
		"127.0.0.1:1": "connection refused", "[::1]:1": "connection refused",
		nodeIP + ":80": "cannot assign requested address", "[2001:db8::1]:80": "cannot assign requested address", // no address of the Pod
	} {
		if got := w.tell("dial " + to); !strings.Contains(got, want) {
			t.Errorf("dial %s: %s, want %s", to, got, want)
		}
	}
}

// promptly fails if the app does not answer within d of an event, and what the machine takes for some answers. It tries a few
// times, because a machine may be busy at any moment.
func (w *world) promptly(d time.Duration, event func(*world)) *world {
	w.t.Helper()
	for attempt := 1; ; attempt++ {
		w.steered()
		began := time.Now()
		for range 10 {
			ask(w.node, podIP+":"+otherPort)
		}
		limit := d + time.Since(began)
		began = time.Now()
		event(w)
		answers(w.t, w.node, podIP+":"+appPort, "APP")
		took := time.Since(began)
		w.t.Logf("the app answered after %v", took)
		if took <= limit {
			return w
		}
		if attempt == 5 {
			w.t.Fatalf("the app answered after %v, want %v", took, limit)
		}
		w = newWorld(w.t, w.keep)
	}
}

func survivesCarrier(w *world) {
	w = w.promptly(100*time.Millisecond, func(w *world) { w.signal(w.carrier, syscall.SIGKILL) })
	w.ends(ExitCarrierGone, handover.ReasonCarrierGone)
}

func survivesFreeze(w *world) {
	freeze := func(w *world) {
		w.signal(w.carrier, syscall.SIGSTOP)
		// Await this first: a question to the frozen carrier would wait for its timeout of a second.
		eventually(w.t, "the program is detached", func() (string, bool) { return "", len(w.links()) == 0 })
	}
	w = w.promptly(2*time.Second, freeze)
	w.signal(w.carrier, syscall.SIGCONT)
	answers(w.t, w.node, podIP+":"+appPort, "CARRIER")
	freeze(w)
	w.signal(w.carrier, syscall.SIGKILL)
	w.ends(ExitCarrierGone, handover.ReasonCarrierGone)
}

func survivesOpener(w *world) {
	w = w.promptly(100*time.Millisecond, func(w *world) { w.signal(w.opener, syscall.SIGKILL) })
	w.says("gone")
	w.nothingLeft()
}

func survivesFrozenOpener(w *world) {
	w = w.promptly(2*time.Second, func(w *world) { w.signal(w.opener, syscall.SIGSTOP) })
	w.says("gone")
	w.signal(w.opener, syscall.SIGCONT)
	w.ends(ExitCarrierGone, handover.ReasonCarrierGone)
}

// The kubelet stops both containers at once. The carrier still dials the app for connections that it has accepted.
func stops(w *world) {
	t := w.t
	w.steered()
	w.signal(w.opener, syscall.SIGTERM)
	answers(t, w.node, podIP+":"+appPort, "APP")
	if got := w.tell("dial 127.0.0.1:" + appPort); !strings.HasPrefix(got, "APP ") {
		t.Errorf("a dial while the opener stops: %s", got)
	}
	_ = w.carrier.in.Close()
	w.ends(ExitEnded, handover.ReasonStopped)
}

// A carrier that goes on is left after a while.
func stopsAlone(w *world) {
	w.steered()
	w.signal(w.opener, syscall.SIGTERM)
	w.says("gone")
	w.ends(ExitEnded, handover.ReasonStopped)
}

func endsWithPod(w *world) {
	t := w.t
	w.steered()
	_ = w.opener.in.Close()
	answers(t, w.node, podIP+":"+appPort, "APP")
	w.says("gone")
	w.ends(ExitEnded, handover.ReasonTargetGone)
}

// Only the first process of the carrier's user gets the sockets.
func TestOneCarrier(t *testing.T) {
	privileged.Need(t)
	w := newOpener(t, nil)
	w.carrier = w.startCarrier(carrierUser + 1)
	if got := w.hear(); !strings.HasPrefix(got, "failed:") {
		t.Errorf("a carrier of another user says %q", got)
	}
	w.carrier = w.startCarrier(carrierUser)
	w.says("connected 2")
	if _, err := os.Stat(w.socket); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	w.steered()
	w.signal(w.carrier, syscall.SIGTERM)
	w.ends(ExitCarrierGone, handover.ReasonCarrierGone)
}

// Without one of its capabilities the opener says which it needs.
func TestMissingRight(t *testing.T) {
	privileged.Need(t)
	all := settings(t)[privilege.Capabilities]
	cases := map[string]struct {
		missing uintptr
		want    string
	}{
		"SYS_ADMIN": {missing: unix.CAP_SYS_ADMIN, want: "needs CAP_SYS_ADMIN"},
		"NET_ADMIN": {missing: unix.CAP_NET_ADMIN, want: "before Linux 6.9 also CAP_NET_ADMIN"},
	}
	for name, tc := range cases {
		if !all[tc.missing] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := &world{testNet: newTestNet(t), t: t, socket: filepath.Join(t.TempDir(), "opener.sock")}
			keep := maps.Clone(all)
			delete(keep, tc.missing)
			c := w.start("opener", func(cmd *exec.Cmd) error {
				cmd.ExtraFiles = []*os.File{w.pod}
				privileged.StartWith(t, cmd, keep)
				return nil
			})
			w.awaitEnd(c)
			if got := c.log.String(); c.ProcessState.ExitCode() != ExitFailed || !strings.Contains(got, tc.want) {
				t.Errorf("exit code %d, want %q in %s", c.ProcessState.ExitCode(), tc.want, got)
			}
		})
	}
}
