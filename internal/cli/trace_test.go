package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/kind"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// lines returns the Pod and the content of each line of a trace.
func lines(t *testing.T, b []byte) []string {
	t.Helper()
	var got []string
	for r := tracefmt.NewReader(bytes.NewReader(b)); ; {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return got
		case err != nil:
			t.Fatal(err)
		case line.Header != nil:
			got = append(got, line.Header.Pod+" begins")
		case line.Account != nil:
			got = append(got, fmt.Sprintf("%s ends with %d", line.Account.Pod, line.Account.Written))
		default:
			got = append(got, fmt.Sprintf("%s %d", line.Record.Pod, line.Record.Time.Unix()))
		}
	}
}

// merged returns the merged lines of both Pods' traces.
var merged = []string{"web-1 begins", "web-2 begins", "web-1 1", "web-2 2", "web-1 3", "web-2 4", "web-2 ends with 2", "web-1 5", "web-1 ends with 3"}

func linesIn(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return lines(t, b)
}

func TestTrace(t *testing.T) {
	s := newAPIServer(t, kind.Trace)
	s.onCreate, s.breakOnce = s.twoPods(v1alpha1.PhaseCapturing), true
	path := filepath.Join(t.TempDir(), "web.ndjson")
	r := start(t, s, nil, "trace", "deploy/web", "--for", "30s", "--events", "process,file", "--min-latency", "10ms", "--max-events", "100",
		"--max-bytes", "100Mi", "--no-follow", "--retain-for", "10m", "--job-id", "qwer", "-o", path)
	r.errOut.await(t, "shop/web-x7k2p (Deployment/web): Capturing\n")
	r.errOut.await(t, " events, 0 B, 0 lost\n")
	s.later("traces/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)

	hundred, no := int64(100), false
	want := &v1alpha1.TraceSpec{
		TargetRef: &v1alpha1.TargetReference{Kind: "Deployment", Name: "web"}, JobID: "qwer", RetainFor: "10m",
		Duration: "30s", Events: []v1alpha1.TraceGroup{"process", "file"}, MinLatency: "10ms", MaxBytes: 100 << 20, MaxEvents: &hundred, FollowPods: &no,
	}
	if diff := cmp.Diff([]any{want}, s.created); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(merged, linesIn(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	out := r.out.String()
	for _, text := range []string{
		"5 events in 4.00s: file 5. 1 event lost: ring 1.\n", "\nPOD    NODE  STATE      REASON    EVENTS  ", "  LOST\nweb-1  n1    Completed  Duration       3  ",
		"\nSaved to " + path,
	} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in the standard output:\n%s", text, out)
		}
	}
	if strings.Contains(out, "INCOMPLETE") {
		t.Errorf("incomplete:\n%s", out)
	}
	if len(s.captures) != 0 || s.accesses != 0 {
		t.Errorf("%d captures and %d ResultAccesses are left in the cluster", len(s.captures), s.accesses)
	}

	code, read, errOut := runTrace(t, "", false, path)
	if code != 0 || !strings.Contains(read, "\n00:00:04.000000  web-2/1 ") || !strings.Contains(read, "1 event lost") {
		t.Errorf("read with code %d, %s:\n%s", code, errOut, read)
	}
}

func TestTraceOutputs(t *testing.T) {
	for name, tc := range map[string]struct {
		args        []string
		wantFiles   []string // lines of a file, or the names in a directory
		wantLines   []string // on standard output
		wantSummary bool
	}{
		"merged":              {[]string{"-o", "web.ndjson"}, merged, nil, true},
		"one JSON":            {[]string{"-o", "web.ndjson", "--json"}, merged, nil, false},
		"the standard output": {[]string{"-o", "-"}, nil, merged, false},
		"apart":               {[]string{"-o", "web", "--keep-separate"}, []string{"web-1-qwer.ndjson", "web-2-qwer.ndjson"}, nil, true},
		"FLAP":                {[]string{"-o", "web", "--format", "flap"}, []string{"web-1-qwer-trace_io_0.log", "web-2-qwer-trace_io_0.log"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			s := newAPIServer(t, kind.Trace)
			s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
			r := sonde(t, s, report.ExitOK, append([]string{"trace", "web"}, tc.args...)...)
			if tc.wantFiles != nil {
				if diff := cmp.Diff(tc.wantFiles, saved(t, tc.args[1])); diff != "" {
					t.Errorf("saved (-want +got):\n%s", diff)
				}
			}
			if tc.wantLines != nil {
				if diff := cmp.Diff(tc.wantLines, lines(t, []byte(r.out.String()))); diff != "" {
					t.Errorf("standard output (-want +got):\n%s", diff)
				}
			}
			if got := strings.Contains(r.out.String(), "Files, by time of calls"); got != tc.wantSummary {
				t.Errorf("a summary: %t, want %t:\n%s", got, tc.wantSummary, r.out)
			}
		})
	}
}

// saved returns the lines of a file, or the names in a directory.
func saved(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		return linesIn(t, path)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestTraceAsJSON(t *testing.T) {
	t.Chdir(t.TempDir())
	s := newAPIServer(t, kind.Trace)
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	r := sonde(t, s, report.ExitOK, "trace", "web", "--json", "--keep")
	var got report.Report
	if err := json.Unmarshal([]byte(r.out.String()), &got); err != nil {
		t.Fatalf("%v in\n%s", err, r.out)
	}
	want := report.EventCounts{Events: 5, Lost: 1, LostBy: map[string]int64{"ring": 1}}
	if diff := cmp.Diff(&want, got.Total.EventCounts); diff != "" || got.Total.PacketCounts != nil {
		t.Errorf("total (-want +got):\n%s\nof packets: %+v", diff, got.Total.PacketCounts)
	}
	if found, err := filepath.Glob("web-*Z.ndjson"); err != nil || len(found) != 1 || got.Path != found[0] {
		t.Errorf("saved as %v (%v), reported as %q", found, err, got.Path)
	}
	if len(s.captures) != 1 {
		t.Errorf("%d captures are left", len(s.captures))
	}
}

func TestTraceThatIsIncomplete(t *testing.T) {
	s := newAPIServer(t, kind.Trace)
	s.onCreate = func(c v1alpha1.Capture) {
		s.twoPods(v1alpha1.PhaseCompleted)(c)
		status := c.CaptureStatus()
		status.Phase = v1alpha1.PhaseIncomplete
		status.Pods[1].Phase, status.Pods[1].Reason = v1alpha1.PhaseIncomplete, v1alpha1.ReasonKilled
		s.files["u2/web-2-qwer.ndjson"], _, _ = bytes.Cut(s.files["u2/web-2-qwer.ndjson"], []byte(`{"sonde":"account"`))
		status.Pods[1].Files[0].Bytes = 1
	}
	path := filepath.Join(t.TempDir(), "web.ndjson")
	r := sonde(t, s, report.ExitIncomplete, "trace", "web", "-o", path)
	for _, text := range []string{"web-2: the account at the end is missing", "the saved files do not have everything that the Pods did.\n  web-2 is Incomplete: Killed\n"} {
		if !strings.Contains(r.out.String(), text) {
			t.Errorf("no %q in\n%s", text, r.out)
		}
	}
	if code, _, _ := runTrace(t, "", false, path); code != 3 {
		t.Errorf("read with code %d, want 3", code)
	}
}

// A trace without a duration continues when the plugin exits, so the plugin prints how to stop it.
func TestLeavingATraceSaysHowToEndIt(t *testing.T) {
	s := newAPIServer(t, kind.Trace)
	s.add(&v1alpha1.Trace{}, v1alpha1.PhaseCapturing)
	r := start(t, s, nil, "download", "trace/web", "-o", filepath.Join(t.TempDir(), "web.ndjson"))
	r.errOut.await(t, "Capturing, ")
	r.signals <- os.Interrupt
	r.await(t, report.ExitInterrupted)
	want := "Trace shop/web still exists and continues. To stop it:\n  kubectl sonde stop trace/web -n shop\nTo fetch its events:\n  kubectl sonde download trace/web -n shop\n"
	if !strings.Contains(r.errOut.String(), want) {
		t.Errorf("no %q in\n%s", want, r.errOut)
	}
}

// withBoth returns a server with a capture and a trace of the same name that have ended.
func withBoth(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t, kind.Trace)
	s.add(&v1alpha1.PacketCapture{}, v1alpha1.PhaseCompleted).CaptureStatus().Totals = v1alpha1.Totals{Pods: 2, Completed: 2, Packets: 5, Bytes: 300}
	s.add(&v1alpha1.Trace{}, v1alpha1.PhaseCompleted).CaptureStatus().Totals = v1alpha1.Totals{Pods: 2, Completed: 2, Events: 5, Lost: 1, Bytes: 1500}
	return s
}

func TestGetBothKinds(t *testing.T) {
	const packetTable = "NAME  PHASE      TARGET          JOBID  PODS  PACKETS  DROPPED  AGE\nweb   Completed  Deployment/web  qwer      2        5        0   5h\n"
	const traceTable = "NAME  PHASE      TARGET          JOBID  PODS  EVENTS  LOST  AGE\nweb   Completed  Deployment/web  qwer      2       5     1   5h\n"
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"tables":           {nil, packetTable + "\n" + traceTable},
		"a name":           {[]string{"web"}, packetTable},
		"a trace":          {[]string{"trace/web"}, traceTable},
		"a capture":        {[]string{"pcap/web"}, packetTable},
		"names":            {[]string{"-o", "name"}, "packetcapture.monitoring.openshift.tpg/web\ntrace.monitoring.openshift.tpg/web\n"},
		"by such a name":   {[]string{"trace.monitoring.openshift.tpg/web", "-o", "jsonpath={.kind} {.status.totals.events}"}, "Trace 5"},
		"jsonpath of both": {[]string{"-o", "jsonpath={.kind}:{range .items[*]} {.kind} {.status.phase}{end}"}, "List: PacketCapture Completed Trace Completed"},
		"all, wide": {
			[]string{"-A", "-o", "wide", "traces/web"},
			"NAMESPACE  NAME  PHASE      TARGET          JOBID  PODS  EVENTS  LOST  AGE  BYTES  REASON\n" +
				"shop       web   Completed  Deployment/web  qwer      2       5     1   5h   1500\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := sonde(t, withBoth(t), report.ExitOK, append([]string{"get"}, tc.args...)...)
			got := r.out.String()
			if i := strings.Index(got, "\n\nPOD"); i >= 0 {
				got = got[:i+1]
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || r.errOut.String() != "" {
				t.Errorf("(-want +got):\n%s\nstandard error %q", diff, r.errOut)
			}
		})
	}
	r := sonde(t, withBoth(t), report.ExitOK, "get", "trace/web", "-o", "wide")
	if want := "\n\nNote: 1 events were lost and are in no file (ring 1).\n"; !strings.HasSuffix(r.out.String(), want) {
		t.Errorf("of lost events no %q at the end of\n%s", want, r.out)
	}
	r = sonde(t, newAPIServer(t, kind.Trace), report.ExitOK, "get")
	if r.out.String() != "" || r.errOut.String() != "No PacketCaptures or Traces found in namespace shop.\n" {
		t.Errorf("of nothing: %q, %q", r.out, r.errOut)
	}
}

// A name without a kind means the PacketCapture, if there is one.
func TestNamesOfBothKinds(t *testing.T) {
	s := withBoth(t)
	dir := t.TempDir()
	sonde(t, s, report.ExitOK, "download", "trace/web", "-o", filepath.Join(dir, "web.ndjson"))
	if diff := cmp.Diff(merged, linesIn(t, filepath.Join(dir, "web.ndjson"))); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	sonde(t, s, report.ExitOK, "download", "web", "-o", filepath.Join(dir, "web.pcapng"))
	if got := timesIn(t, filepath.Join(dir, "web.pcapng")); len(got) != 5 {
		t.Errorf("packets %v", got)
	}
	for _, want := range []string{
		"stop web: packetcapture.monitoring.openshift.tpg/web had ended: Completed\n",
		"stop trace/web: trace.monitoring.openshift.tpg/web had ended: Completed\n",
		"delete web: packetcapture.monitoring.openshift.tpg/web deleted\n",
		"stop web --wait: trace.monitoring.openshift.tpg/web had ended: Completed\n",
		"delete web: trace.monitoring.openshift.tpg/web deleted\n",
	} {
		command, _, _ := strings.Cut(want, ":")
		r := sonde(t, s, report.ExitOK, strings.Fields(command)...)
		if got := command + ": " + r.out.String(); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
}

func TestTraceErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no target":         {[]string{"trace"}, "kubectl sonde trace needs TARGET, like deploy/web, or the command read"},
		"latency":           {[]string{"trace", "web", "--min-latency", "1.5ms"}, `--min-latency "1.5ms": write a number with ns, us, ms or s, like 500us or 10ms`},
		"no groups":         {[]string{"trace", "web", "--events", ""}, "--events is empty"},
		"unknown group":     {[]string{"trace", "web", "--events", "file,openat"}, `--events openat: write one or more of ["process" "file" "io" "network" "memory" "signal"]`},
		"zero events":       {[]string{"trace", "web", "--max-events", "0"}, "--max-events 0: write a number above zero"},
		"FLAP as a stream":  {[]string{"trace", "web", "--format", "flap", "-o", "-"}, "name a directory"},
		"unknown kind":      {[]string{"stop", "pod/web"}, `"pod/web" is not the name of a capture: write NAME, packetcapture/NAME or trace/NAME`},
		"no name":           {[]string{"delete", "trace/"}, `"trace/" is not the name of a capture`},
		"unknown trace":     {[]string{"get", "trace/nope"}, `traces.monitoring.openshift.tpg "nope" not found`},
		"unknown of either": {[]string{"get", "nope"}, `Error from server (NotFound): namespace shop has no PacketCapture and no Trace named "nope"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, kind.Trace)
			r := sonde(t, s, report.ExitError, tc.args...)
			if !strings.Contains(r.errOut.String(), tc.want) || len(s.created) != 0 {
				t.Errorf("said\n%s\nwithout %q; made %v", r.errOut, tc.want, s.created)
			}
		})
	}
	r := sonde(t, newAPIServer(t), report.ExitError, "trace", "web", "-o", filepath.Join(t.TempDir(), "x"))
	if !strings.Contains(r.errOut.String(), "this cluster has no Traces") {
		t.Errorf("older operator: %q", r.errOut)
	}
}
