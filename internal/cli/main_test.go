package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// output is a stream that can be waited on.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	grown chan struct{}
}

func newOutput() *output { return &output{grown: make(chan struct{}, 1)} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.grown <- struct{}{}:
	default:
	}
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (o *output) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for !strings.Contains(o.String(), text) {
		select {
		case <-o.grown:
		case <-deadline:
			t.Fatalf("no %q in\n%s", text, o)
		}
	}
}

// run is one run of the plugin in its own directory.
type run struct {
	out, errOut *output
	signals     chan os.Signal
	code        chan int
}

func start(t *testing.T, s *apiServer, terminal *os.File, args ...string) *run {
	t.Helper()
	return startWith(t, s, func(o *Options) { o.Terminal = terminal }, args...)
}

// startTo runs the plugin with out as standard output.
func startTo(t *testing.T, s *apiServer, out io.Writer, args ...string) *run {
	t.Helper()
	return startWith(t, s, func(o *Options) { o.Streams.Out = out }, args...)
}

func startWith(t *testing.T, s *apiServer, change func(*Options), args ...string) *run {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	r := &run{out: newOutput(), errOut: newOutput(), signals: make(chan os.Signal, 2), code: make(chan int, 1)}
	args = append([]string{"-n", "shop", "--server", s.url}, args...)
	o := Options{Streams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: r.out, ErrOut: r.errOut}, Signals: r.signals}
	change(&o)
	go func() { r.code <- Main(t.Context(), args, o) }()
	return r
}

func (r *run) await(t *testing.T, wantCode int) {
	t.Helper()
	select {
	case code := <-r.code:
		if code != wantCode {
			t.Fatalf("exit code %d, want %d\nstdout:\n%s\nstderr:\n%s", code, wantCode, r.out, r.errOut)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the plugin does not end\nstdout:\n%s\nstderr:\n%s", r.out, r.errOut)
	}
}

func sonde(t *testing.T, s *apiServer, wantCode int, args ...string) *run {
	t.Helper()
	r := start(t, s, nil, args...)
	r.await(t, wantCode)
	return r
}

func times(t *testing.T, b []byte) []uint64 {
	t.Helper()
	var got []uint64
	for r := pcapng.NewReader(bytes.NewReader(b)); ; {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if p, ok := block.(*pcapng.Packet); ok {
			got = append(got, p.Time)
		}
	}
}

func timesIn(t *testing.T, path string) []uint64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return times(t, b)
}

func TestCapture(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate, s.breakOnce = s.twoPods(v1alpha1.PhaseCapturing), true
	path := filepath.Join(t.TempDir(), "web.pcapng")
	r := start(t, s, nil, "capture", "deploy/web", "--for", "30s", "--filter", "tcp port 80", "--max-bytes", "100Mi", "--interface", "eth0,lo", "-o", path)
	r.errOut.await(t, "shop/web-x7k2p (Deployment/web): Capturing\n")
	r.errOut.await(t, "web-1 on n1: Capturing, ")
	s.later("packetcaptures/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)

	want := v1alpha1.PacketCaptureSpec{
		TargetRef: &v1alpha1.TargetReference{Kind: "Deployment", Name: "web"},
		Duration:  "30s", Filter: "tcp port 80", MaxBytes: 100 << 20, Interfaces: []string{"eth0", "lo"},
	}
	if diff := cmp.Diff([]any{&want}, s.created); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if got := timesIn(t, path); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("packets %v", got)
	}
	if out := r.out.String(); !strings.HasPrefix(out, "POD") || !strings.Contains(out, "Saved to "+path) {
		t.Errorf("standard output:\n%s", out)
	}
	if len(s.captures) != 0 || s.accesses != 0 {
		t.Errorf("%d captures and %d ResultAccesses are left in the cluster", len(s.captures), s.accesses)
	}
}

func TestCaptureWithAWarning(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	s.warning = "spec.containers[0]: Deployment web has no container wbe (it has web)"
	r := sonde(t, s, report.ExitOK, "capture", "web", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	if want := "Warning: " + s.warning + "\n"; !strings.Contains(r.errOut.String(), want) {
		t.Errorf("no %q in\n%s", want, r.errOut)
	}
}

func TestCaptureThatIsIncomplete(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate = func(c v1alpha1.Capture) {
		s.twoPods(v1alpha1.PhaseCompleted)(c)
		status := c.CaptureStatus()
		status.Phase = v1alpha1.PhaseIncomplete
		status.Pods[1].Phase, status.Pods[1].Reason, status.Pods[1].Files = v1alpha1.PhaseIncomplete, v1alpha1.ReasonNodeLost, nil
	}
	path := filepath.Join(t.TempDir(), "web.pcapng")
	r := sonde(t, s, report.ExitIncomplete, "capture", "web", "--json", "-o", path)
	var got report.Report
	if err := json.Unmarshal([]byte(r.out.String()), &got); err != nil {
		t.Fatalf("%v in\n%s", err, r.out)
	}
	if got.Complete || got.Path != path || !slices.Equal(got.Problems, []string{"web-2 is Incomplete: NodeLost"}) {
		t.Errorf("summary %+v", got)
	}
	if got := timesIn(t, path); !slices.Equal(got, []uint64{1, 3, 5}) {
		t.Errorf("packets %v", got)
	}
	if len(s.captures) != 1 || !strings.Contains(r.errOut.String(), "kubectl sonde download web-x7k2p -n shop") {
		t.Errorf("%d captures are left; said\n%s", len(s.captures), r.errOut)
	}
}

// A Pod that is Completed can be without its file, because the agent's Pod was evicted since. What was saved is not everything then.
func TestCaptureWhoseFileIsGone(t *testing.T) {
	const gone = "web-2: the file is not in the cluster any more: the agent's Pod ended before, as by a drain of its node"
	lose := func(s *apiServer, lost ...int) func(v1alpha1.Capture) {
		return func(c v1alpha1.Capture) {
			s.twoPods(v1alpha1.PhaseCompleted)(c)
			for _, i := range lost {
				c.CaptureStatus().Pods[i].Files = nil
			}
		}
	}
	s := newAPIServer(t)
	s.onCreate = lose(s, 1)
	path := filepath.Join(t.TempDir(), "web.pcapng")
	r := sonde(t, s, report.ExitIncomplete, "capture", "web", "--json", "-o", path)
	var got report.Report
	if err := json.Unmarshal([]byte(r.out.String()), &got); err != nil {
		t.Fatalf("%v in\n%s", err, r.out)
	}
	if got.Complete || got.Path != path || !slices.Equal(got.Problems, []string{gone}) {
		t.Errorf("summary %+v", got)
	}
	if len(s.captures) != 1 {
		t.Error("the capture is deleted")
	}

	s = newAPIServer(t)
	s.onCreate = lose(s, 0, 1)
	r = sonde(t, s, report.ExitError, "capture", "web", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	if out := r.out.String(); !strings.Contains(out, "Nothing was saved.") || !strings.Contains(out, "2 files were not saved: the file is not in the cluster any more") {
		t.Errorf("said\n%s", out)
	}
}

func TestCaptureToTheStandardOutput(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	r := sonde(t, s, report.ExitOK, "capture", "pod/web-1", "-o", "-", "--keep")
	if got := times(t, []byte(r.out.String())); !slices.Equal(got, []uint64{1, 2, 3, 4, 5}) {
		t.Errorf("packets %v", got)
	}
	if !strings.Contains(r.errOut.String(), "Written to the standard output") || len(s.captures) != 1 {
		t.Errorf("said\n%s\nand kept %d captures", r.errOut, len(s.captures))
	}
}

func TestRefusedByTheWebhook(t *testing.T) {
	s := newAPIServer(t)
	denied := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), "", nil)
	denied.ErrStatus.Message = `admission webhook "packetcaptures.monitoring.openshift.tpg" denied the request: filter "tcp prot 80": syntax error at prot: write port`
	s.refuse = denied
	r := sonde(t, s, report.ExitError, "capture", "web", "--filter", "tcp prot 80", "-o", filepath.Join(t.TempDir(), "x"))
	if diff := cmp.Diff("Error from server (Forbidden): "+denied.ErrStatus.Message+"\n", r.errOut.String()); diff != "" {
		t.Errorf("standard error (-want +got):\n%s", diff)
	}
}

func TestRefusedByRBACNamesTheRoles(t *testing.T) {
	s := newAPIServer(t)
	s.refuse = apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("packetcaptures").GroupResource(), "",
		errors.New(`User "someone" cannot create resource "packetcaptures"`))
	r := sonde(t, s, report.ExitError, "capture", "web", "-o", filepath.Join(t.TempDir(), "x"))
	if !strings.Contains(r.errOut.String(), "ClusterRole sonde-edit") {
		t.Errorf("said\n%s", r.errOut)
	}
}

// signaled runs a capture of two Pods, sends it the signals, and checks that it has saved what was captured.
func signaled(t *testing.T, signals ...os.Signal) *run {
	t.Helper()
	s := newAPIServer(t)
	s.onCreate, s.onStop = s.twoPods(v1alpha1.PhaseCapturing), s.twoPods(v1alpha1.PhaseCompleted)
	path := filepath.Join(t.TempDir(), "web.pcapng")
	r := start(t, s, nil, "capture", "web", "-o", path)
	r.errOut.await(t, "Capturing, ")
	for _, signal := range signals {
		r.signals <- signal
	}
	r.await(t, report.ExitOK)
	if got := timesIn(t, path); len(got) != 5 || len(s.captures) != 0 {
		t.Errorf("packets %v, and %d captures are left", got, len(s.captures))
	}
	return r
}

func TestInterruptStopsAndSaves(t *testing.T) {
	r := signaled(t, os.Interrupt)
	if !strings.Contains(r.errOut.String(), "Stopping and saving what was captured.") {
		t.Errorf("said\n%s", r.errOut)
	}
	if text := r.errOut.String(); strings.Count(text, "): Completed\n") != 1 || !strings.Contains(text, "): Saved\n") {
		t.Errorf("it does not say once that the capture has ended, and that it is saved:\n%s", text)
	}
}

// A shell passes on the hangup that the kernel sends, too, when the terminal is closed.
func TestClosedTerminalStopsAndSaves(t *testing.T) {
	signaled(t, syscall.SIGHUP, syscall.SIGHUP)
}

func TestInterruptingTwiceLeaves(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCapturing)
	dir := t.TempDir()
	r := start(t, s, nil, "capture", "web", "-o", filepath.Join(dir, "web.pcapng"), "--operator-namespace", "sonde-system")
	r.errOut.await(t, "Capturing, ")
	r.signals <- os.Interrupt
	r.errOut.await(t, "Stopping\n")
	r.signals <- os.Interrupt
	r.await(t, report.ExitInterrupted)
	if !strings.Contains(r.errOut.String(), "To fetch its packets:\n  kubectl sonde download web-x7k2p -n shop\n") {
		t.Errorf("said\n%s", r.errOut)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind %v, %v", left, err)
	}
	if len(s.captures) != 1 || s.accesses != 0 {
		t.Errorf("%d captures and %d ResultAccesses are left", len(s.captures), s.accesses)
	}
}

func TestInterruptLeavesADownloadsCaptureRunning(t *testing.T) {
	s := newAPIServer(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCapturing)
	c := s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "download", "web", "-o", filepath.Join(t.TempDir(), "web.pcapng"))
	r.errOut.await(t, "Capturing, ")
	r.signals <- os.Interrupt
	r.await(t, report.ExitInterrupted)
	if c.Common().Stop {
		t.Error("the capture was stopped")
	}
}

// ended returns a server with one capture that has ended.
func ended(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCompleted).CaptureStatus().Totals = v1alpha1.Totals{Pods: 2, Completed: 2, Packets: 5, Bytes: 300}
	return s
}

func TestDownload(t *testing.T) {
	s := ended(t)
	dir := t.TempDir()
	t.Chdir(dir)
	sonde(t, s, report.ExitOK, "download", "web")
	found, err := filepath.Glob("web-*Z.pcapng")
	if err != nil || len(found) != 1 || len(timesIn(t, found[0])) != 5 {
		t.Errorf("saved as %v, %v", found, err)
	}
	sonde(t, s, report.ExitOK, "download", "web", "--keep-separate", "-o", "pods")
	if got := timesIn(t, "pods/web-2-qwer.pcapng"); !slices.Equal(got, []uint64{2, 4}) {
		t.Errorf("the second Pod's packets: %v", got)
	}
	if len(s.captures) != 1 || s.accesses != 0 {
		t.Errorf("%d captures and %d ResultAccesses are left", len(s.captures), s.accesses)
	}
}

func TestGet(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"table": {nil, "NAME  PHASE      TARGET          JOBID  PODS  PACKETS  DROPPED  AGE\nweb   Completed  Deployment/web  qwer      2        5        0   5h\n"},
		"wide": {
			[]string{"-A", "-o", "wide"},
			"NAMESPACE  NAME  PHASE      TARGET          JOBID  PODS  PACKETS  DROPPED  AGE  BYTES  TRUNCATED  OVERWRITTEN  REASON\n" +
				"shop       web   Completed  Deployment/web  qwer      2        5        0   5h    300          0            0\n",
		},
		"one, wide": {
			[]string{"web", "-o", "wide"},
			`NAME  PHASE      TARGET          JOBID  PODS  PACKETS  DROPPED  AGE  BYTES  TRUNCATED  OVERWRITTEN  REASON
web   Completed  Deployment/web  qwer      2        5        0   5h    300          0            0

POD    NODE  STATE      REASON    PACKETS  BYTES  DROPPED
web-1  n1    Completed  Duration        3  180 B        0
web-2  n1    Completed  Duration        2  120 B        0
TOTAL                                   5  300 B        0
`,
		},
		"name":          {[]string{"-o", "name"}, "packetcapture.monitoring.openshift.tpg/web\n"},
		"one name":      {[]string{"web", "-o", "name"}, "packetcapture.monitoring.openshift.tpg/web\n"},
		"jsonpath":      {[]string{"web", "-o", "jsonpath={.kind} {.status.phase}"}, "PacketCapture Completed"},
		"jsonpath list": {[]string{"-o", "jsonpath={.items[*].status.totals.packets}"}, "5"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := sonde(t, ended(t), report.ExitOK, append([]string{"get"}, tc.args...)...)
			if diff := cmp.Diff(tc.want, r.out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestGetNothing(t *testing.T) {
	r := sonde(t, newAPIServer(t), report.ExitOK, "get")
	if r.out.String() != "" || r.errOut.String() != "No PacketCaptures found in namespace shop.\n" {
		t.Errorf("stdout %q, stderr %q", r.out, r.errOut)
	}
	r = sonde(t, newAPIServer(t), report.ExitOK, "get", "-o", "json")
	var list v1alpha1.PacketCaptureList
	if err := json.Unmarshal([]byte(r.out.String()), &list); err != nil || list.Kind != "PacketCaptureList" {
		t.Errorf("%v: %s", err, r.out)
	}
}

func TestStopAndDelete(t *testing.T) {
	s := ended(t)
	c := s.captures["packetcaptures/web"]
	s.twoPods(v1alpha1.PhaseCapturing)(c)
	s.onStop = s.twoPods(v1alpha1.PhaseCompleted)
	r := sonde(t, s, report.ExitOK, "stop", "web", "--wait")
	if r.out.String() != "packetcapture.monitoring.openshift.tpg/web stopping\n" || !c.Common().Stop {
		t.Errorf("said %q, and stop is %t", r.out, c.Common().Stop)
	}
	if !strings.Contains(r.errOut.String(), "Completed") {
		t.Errorf("did not wait:\n%s", r.errOut)
	}
	r = sonde(t, s, report.ExitOK, "stop", "web")
	if r.out.String() != "packetcapture.monitoring.openshift.tpg/web had ended: Completed\n" {
		t.Errorf("said %q of a capture that has ended", r.out)
	}
	r = sonde(t, s, report.ExitOK, "delete", "web")
	if r.out.String() != "packetcapture.monitoring.openshift.tpg/web deleted\n" || len(s.captures) != 0 {
		t.Errorf("said %q, and %d captures are left", r.out, len(s.captures))
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	there := filepath.Join(t.TempDir(), "there.pcapng")
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"no target":         {[]string{"capture"}, "kubectl sonde capture needs TARGET, like deploy/web"},
		"unknown kind":      {[]string{"capture", "job/x"}, "write deploy/NAME, sts/NAME, ds/NAME or pod/NAME"},
		"no number":         {[]string{"conversations", there, "--top", "all"}, "invalid argument \"all\" for \"--top\" flag: write a number\nSee"},
		"unknown flag":      {[]string{"capture", "web", "--seconds", "3"}, "unknown flag: --seconds\nSee 'kubectl sonde capture --help'"},
		"duration":          {[]string{"capture", "web", "--for", "soon"}, "--for: duration"},
		"zero snap length":  {[]string{"capture", "web", "--snap-length", "0"}, "--snap-length 0: write a number above zero"},
		"empty duration":    {[]string{"capture", "web", "--for", ""}, "--for is empty: write a value, or omit the flag"},
		"empty engine":      {[]string{"capture", "web", "--engine", ""}, "--engine is empty"},
		"empty interfaces":  {[]string{"capture", "web", "--interface", ""}, "--interface is empty"},
		"zero packets":      {[]string{"capture", "web", "--max-packets", "0"}, "--max-packets 0: write a number above zero"},
		"file is there":     {[]string{"capture", "web", "-o", there}, "overwrite it with --force"},
		"two outputs":       {[]string{"capture", "web", "-o", "-", "--json"}, "name a file with -o, or omit --json"},
		"unknown capture":   {[]string{"download", "nope"}, `packetcaptures.monitoring.openshift.tpg "nope" not found`},
		"stop of unknown":   {[]string{"stop", "nope"}, `"nope" not found`},
		"delete of unknown": {[]string{"delete", "nope"}, `"nope" not found`},
		"get of unknown":    {[]string{"get", "nope"}, `Error from server (NotFound): packetcaptures.monitoring.openshift.tpg "nope" not found`},
		"unknown format":    {[]string{"get", "-o", "xml"}, `unable to match a printer suitable for the output format "xml"`},
		"no file":           {[]string{"conversations", "/does/not/exist"}, "no such file"},
		"no top":            {[]string{"conversations", there, "--top", "0"}, "--top: write a number above zero"},
		"unknown command":   {[]string{"record"}, `unknown command "record"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			r := sonde(t, s, report.ExitError, tc.args...)
			if !strings.Contains(r.errOut.String(), tc.want) {
				t.Errorf("said\n%s\nwithout %q", r.errOut, tc.want)
			}
			if len(s.created) != 0 {
				t.Error("a capture was made all the same")
			}
		})
	}
}

func TestNotInstalled(t *testing.T) {
	s := newAPIServer(t)
	s.url += "/elsewhere" // every path there answers 404 without a Status
	r := sonde(t, s, report.ExitError, "capture", "web", "-o", filepath.Join(t.TempDir(), "x"))
	if !strings.Contains(r.errOut.String(), "Sonde is not installed there") {
		t.Errorf("said\n%s", r.errOut)
	}
}

// The help of a command has its own flags. The flags of all commands have a command of their own.
func TestHelp(t *testing.T) {
	s := newAPIServer(t)
	for name, tc := range map[string]struct {
		args            []string
		want, wantNever []string
	}{
		"of the plugin": {[]string{"--help"}, []string{"conversations Show", `"kubectl sonde options" lists`}, []string{"--client-key", "--as-group"}},
		"of a command":  {[]string{"get", "--help"}, []string{"--all-namespaces", `"kubectl sonde options" lists`}, []string{"--client-key", "--as-group"}},
		"options":       {[]string{"options"}, []string{"--client-key", "-n, --namespace", "--operator-namespace"}, []string{"--all-namespaces"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := sonde(t, s, report.ExitOK, tc.args...).out.String()
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, never := range tc.wantNever {
				if strings.Contains(out, never) {
					t.Errorf("%q is in\n%s", never, out)
				}
			}
		})
	}
}

func TestVersion(t *testing.T) {
	r := sonde(t, newAPIServer(t), report.ExitOK, "version")
	if !strings.HasPrefix(r.out.String(), "kubectl-sonde ") {
		t.Errorf("said %q", r.out)
	}
	r = sonde(t, newAPIServer(t), report.ExitOK, "version", "--json")
	if !json.Valid([]byte(r.out.String())) {
		t.Errorf("said %q", r.out)
	}
}
