package cli

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/test/wireshark"
)

// testServer is set in the processes that Wireshark's programs start: this test program is the plugin there.
const testServer = "SONDE_TEST_SERVER"

func TestMain(m *testing.M) {
	server := os.Getenv(testServer)
	if server == "" {
		os.Exit(m.Run())
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(Main(context.Background(), append([]string{"-n", "shop", "--server", server}, os.Args[1:]...), Options{
		Streams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, Signals: signals,
	}))
}

// Wireshark's own programs list the workloads, capture one into a file, and check what they wrote.
func TestExtcapWithTshark(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	s := runningCapture(t)
	sonde(t, s, report.ExitOK, "extcap", "install")
	t.Setenv(testServer, s.url)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	list := wireshark.Run(t, "tshark", "-D")
	for _, want := range []string{" sonde (Kubernetes workload, by Sonde)", " sonde-deploy-web (Deployment shop/web, by Sonde)", " sonde-pcap-web (running PacketCapture shop/web, by Sonde)"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	s.mu.Lock() // the requests come from other processes
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	s.mu.Unlock()
	file := filepath.Join(dir, "web.pcapng")
	cmd := exec.CommandContext(t.Context(), "tshark", "-i", "sonde-deploy-web", "-f", "tcp port 80", "-o", "extcap.sonde_deploy_web.for:9s", "-w", file)
	out, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(out), "rror") {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(wireshark.Run(t, "tshark", "-r", file), "\n"); n != 5 {
		t.Errorf("tshark has captured %d packets, and says\n%s", n, out)
	}
	s.mu.Lock()
	if spec, ok := s.created[0].(*v1alpha1.PacketCaptureSpec); !ok || spec.Filter != "tcp port 80" || spec.Duration != "9s" {
		t.Errorf("the capture is %+v", s.created[0])
	}
	if len(s.captures) != 1 {
		t.Errorf("%d captures are left, want the one that ran", len(s.captures))
	}

	// tshark ends a capture that runs: it is stopped and deleted.
	s.onCreate = s.twoPods(v1alpha1.PhaseCapturing)
	s.mu.Unlock()
	out, err = exec.CommandContext(t.Context(), "tshark", "-i", "sonde-deploy-web", "-a", "duration:2", "-w", file).CombinedOutput()
	if err != nil || strings.Contains(string(out), "rror") {
		t.Errorf("%v\n%s", err, out)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		s.mu.Lock()
		left := len(s.captures)
		s.mu.Unlock()
		if left == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d captures are left\n%s", left, out)
		}
	}
}

// fifo is a named pipe, and what is written to it.
func fifo(t *testing.T) (path string, got *output) {
	t.Helper()
	path, got = filepath.Join(t.TempDir(), "fifo"), newOutput()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		_, _ = io.Copy(got, f)
	}()
	return path, got
}

// Wireshark stops a capture by SIGTERM: nothing is left in the cluster, and nothing on standard error, which Wireshark would show.
func TestExtcapCapture(t *testing.T) {
	s := runningCapture(t)
	path, got := fifo(t)
	r := start(t, s, nil, "extcap", "run", "--capture", "--extcap-interface", "sonde", "--fifo", path, "--target", "sts/web", "--filter", "tcp",
		"--extcap-capture-filter", "port 80", "--snap-length", "128", "--some-later-flag=1")
	awaitPackets(t, got.String, 2)
	r.signals <- syscall.SIGTERM
	r.await(t, report.ExitOK)
	spec, ok := s.created[0].(*v1alpha1.PacketCaptureSpec)
	if !ok || spec.Filter != "(port 80) and (tcp)" || spec.SnapLength != 128 || spec.TargetRef.Kind != v1alpha1.TargetStatefulSet || spec.Duration != "1h" {
		t.Errorf("created %+v", s.created[0])
	}
	if len(s.captures) != 0 || r.errOut.String() != "" || r.out.String() != "" {
		t.Errorf("%d captures are left; said %q and %q", len(s.captures), r.errOut, r.out)
	}
}

// A running capture is followed, and goes on when Wireshark ends.
func TestExtcapFollow(t *testing.T) {
	s := runningCapture(t)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	path, got := fifo(t)
	r := start(t, s, nil, "extcap", "run", "--capture", "--extcap-interface", "sonde-pcap-web", "--fifo", path)
	awaitPackets(t, got.String, 2)
	r.signals <- syscall.SIGTERM
	r.await(t, report.ExitInterrupted)
	if c := s.captures["packetcaptures/web"]; c == nil || c.Common().Stop {
		t.Error("the capture is stopped")
	}
}

func TestExtcapAnswers(t *testing.T) {
	s := newAPIServer(t)
	refused := newAPIServer(t)
	denied := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), "", nil)
	denied.ErrStatus.Message = `admission webhook "packetcapture.monitoring.openshift.tpg" denied the request: filter "tcp prot": write port`
	refused.refuse = denied
	forbidden := newAPIServer(t)
	forbidden.refuse = apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), "", nil)
	tests := map[string]struct {
		s    *apiServer
		args []string
		want string
	}{
		"link types":               {s, []string{"--extcap-dlts", "--extcap-interface", "sonde-deploy-web"}, "dlt {number=1}"},
		"options":                  {s, []string{"--extcap-config", "--extcap-interface", "sonde-deploy-web"}, "{call=--namespace}{display=Namespace}{type=string}{default=shop}"},
		"a target":                 {s, []string{"--extcap-config", "--extcap-interface", "sonde"}, "arg {number=0}{call=--target}"},
		"a good filter":            {s, []string{"--extcap-interface", "sonde-deploy-web", "--extcap-capture-filter", "tcp"}, ""},
		"a bad filter":             {refused, []string{"--extcap-interface", "sonde-deploy-web", "--extcap-capture-filter", "tcp prot"}, `filter "tcp prot": write port`},
		"a filter that is unknown": {forbidden, []string{"--extcap-interface", "sonde-deploy-web", "--extcap-capture-filter", "tcp"}, ""},
		"a filter of a running one": {
			s, []string{"--extcap-interface", "sonde-pcap-web", "--extcap-capture-filter", "tcp"}, "use a display filter",
		},
		"interfaces without a cluster": {s, []string{"--extcap-interfaces", "--server", "http://127.0.0.1:1"}, "interface {value=sonde}"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := sonde(t, tc.s, report.ExitOK, append([]string{"extcap", "run"}, tc.args...)...)
			if got := r.out.String(); !strings.Contains(got, tc.want) || tc.want == "" && got != "" || len(tc.s.captures) > 0 {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	for want, args := range map[string][]string{
		"extcap install":   {"--extcap-interface", "sonde"},
		"refresh":          {"--capture", "--extcap-interface", "eth0"},
		"--fifo":           {"--capture", "--extcap-interface", "sonde-deploy-web"},
		"choose a Target":  {"--capture", "--extcap-interface", "sonde", "--fifo", os.DevNull},
		"a display filter": {"--capture", "--extcap-interface", "sonde-pcap-web", "--fifo", os.DevNull, "--extcap-capture-filter", "tcp"},
	} {
		if r := sonde(t, s, report.ExitError, append([]string{"extcap", "run"}, args...)...); !strings.Contains(r.errOut.String(), want) {
			t.Errorf("%v: no %q in %s", args, want, r.errOut)
		}
	}
}

func TestExtcapInstall(t *testing.T) {
	s, dir := newAPIServer(t), filepath.Join(t.TempDir(), "extcap")
	r := sonde(t, s, report.ExitOK, "extcap", "install", "--dir", dir)
	if !strings.Contains(r.out.String(), "installed "+dir) {
		t.Errorf("said %s", r.out)
	}
	for _, want := range []string{"removed " + dir, "there is no entry in " + dir} {
		if r := sonde(t, s, report.ExitOK, "extcap", "uninstall", "--dir", dir); !strings.Contains(r.out.String(), want) {
			t.Errorf("no %q in %s", want, r.out)
		}
	}
}
