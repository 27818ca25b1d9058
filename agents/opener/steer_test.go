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
	cases := map[string]func(*testing.T, *world){
		"each address":            steersEachAddress,
		"established connections": leavesEstablished,
		"app restarted":           followsRestart,
		"behind a mesh":           steersBehindMesh,
		"dials":                   dialsTheApp,
		"carrier killed":          survivesCarrier,
		"carrier frozen":          survivesFreeze,
		"opener killed":           survivesOpener,
		"opener stopped":          stops,
		"Pod gone":                endsWithPod,
	}
	for setting, keep := range settings(t) {
		for name, test := range cases {
			t.Run(string(setting)+"/"+name, func(t *testing.T) { test(t, newWorld(t, keep)) })
		}
	}
}

// clients are the ways to the app's port: from its node, and in the Pod.
func (w *world) clients() map[string]*os.File {
	return map[string]*os.File{
		podIP: w.node, "[" + podV6 + "]": w.node, "127.0.0.1": w.pod, "[::1]": w.pod, podIP + "%own": w.pod, "[" + podV6 + "]%own": w.pod,
	}
}

func steersEachAddress(t *testing.T, w *world) {
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
	w.steer(appPort, true) // again
	w.steer(appPort, false)
	eachAnswers("after", appPort, "APP")
	w.steer(appPort, false) // again
}

func leavesEstablished(t *testing.T, w *world) {
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
	w.steer(appPort, false)
	if got := said(question(steered)); !strings.HasPrefix(got, "CARRIER ") {
		t.Errorf("a connection of the carrier is answered %q after steering", got)
	}
}

func followsRestart(t *testing.T, w *world) {
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
	w.steer(appPort, false)
	answers(t, w.node, podIP+":"+appPort, "RESTARTED")
}

// steersBehindMesh redirects the port as a mesh does: to a proxy, which connects to the app at loopback.
func steersBehindMesh(t *testing.T, w *world) {
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
	w.steer(appPort, true)
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

func dialsTheApp(t *testing.T, w *world) {
	w.steered()
	for to, from := range map[string]string{
		"127.0.0.1": "127.0.0.1:", "[::1]": "[::1]:", podIP: "127.0.0.1:", "[" + podV6 + "]": "[::1]:",
	} {
		got := w.tell("dial " + to + ":" + appPort)
		if want := "APP " + to + ":" + appPort + " from " + from; !strings.HasPrefix(got, want) {
			t.Errorf("dial %s: %q, want %q", to, got, want)
		}
	}
	for _, listener := range strings.Fields(w.tell("listeners")) {
		if got := w.tell("dial " + listener); !strings.Contains(got, "connection refused") {
			t.Errorf("dial of the carrier's own listener: %s", got)
		}
	}
	for to, want := range map[string]string{
		"127.0.0.1:1": "connection refused", "[::1]:1": "connection refused",
		nodeIP + ":80": "invalid argument", // from loopback only the Pod is reached
	} {
		if got := w.tell("dial " + to); !strings.Contains(got, want) {
			t.Errorf("dial %s: %s, want %s", to, got, want)
		}
	}
}

// within returns how long the app may take to answer: a time, and what a machine takes for some answers.
func (w *world) within(d time.Duration) time.Duration {
	w.t.Helper()
	began := time.Now()
	for range 10 {
		ask(w.node, podIP+":"+otherPort)
	}
	return d + time.Since(began)
}

func (w *world) appAnswersWithin(d time.Duration) {
	w.t.Helper()
	took := answers(w.t, w.node, podIP+":"+appPort, "APP")
	w.t.Logf("the app answered after %v", took)
	if took > d {
		w.t.Errorf("the app answered after %v, want %v", took, d)
	}
}

func survivesCarrier(t *testing.T, w *world) {
	w.steered()
	limit := w.within(100 * time.Millisecond)
	w.signal(w.carrier, syscall.SIGKILL)
	w.appAnswersWithin(limit)
	w.ends(ExitCarrierGone, handover.ReasonCarrierGone)
}

func survivesFreeze(t *testing.T, w *world) {
	w.steered()
	limit := w.within(2 * time.Second)
	w.signal(w.carrier, syscall.SIGSTOP)
	// A connection that the frozen carrier would accept is answered by nobody, so that ask waits for its timeout of a second.
	eventually(t, "the program is detached", func() (string, bool) { return "", len(w.links()) == 0 })
	w.appAnswersWithin(limit)
	w.signal(w.carrier, syscall.SIGCONT)
	answers(t, w.node, podIP+":"+appPort, "CARRIER")
	w.signal(w.carrier, syscall.SIGSTOP)
	eventually(t, "the program is detached again", func() (string, bool) { return "", len(w.links()) == 0 })
	w.signal(w.carrier, syscall.SIGKILL)
	w.ends(ExitCarrierGone, handover.ReasonCarrierGone)
}

func survivesOpener(t *testing.T, w *world) {
	w.steered()
	limit := w.within(100 * time.Millisecond)
	w.signal(w.opener, syscall.SIGKILL)
	w.appAnswersWithin(limit)
	w.says("gone")
	w.nothingLeft()
}

func stops(t *testing.T, w *world) {
	w.steered()
	w.signal(w.opener, syscall.SIGTERM)
	answers(t, w.node, podIP+":"+appPort, "APP")
	w.says("gone")
	w.ends(ExitEnded, handover.ReasonStopped)
}

func endsWithPod(t *testing.T, w *world) {
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
