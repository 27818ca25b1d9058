package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/internal/kind"
)

// runningTrace returns a server whose trace has written its first events.
func runningTrace(t *testing.T) *apiServer {
	t.Helper()
	s := newAPIServer(t, kind.Trace)
	s.onCreate = func(c v1alpha1.Capture) {
		s.twoPods(v1alpha1.PhaseCapturing)(c)
		whole := events(t, "web-1", "u1", nil, 1, 3, 5)
		s.files["u1/web-1-qwer.ndjson"] = whole[:strings.LastIndex(string(whole), `{"time":"1970-01-01T00:00:05`)]
	}
	return s
}

// Events are shown while they happen, the file has all of them, and the summary is printed once at the end.
func TestTraceShowsLines(t *testing.T) {
	s := runningTrace(t)
	path := filepath.Join(t.TempDir(), "web.ndjson")
	r := start(t, s, nil, "trace", "deploy/web", "-o", path, "--color", "always")
	r.out.await(t, "\x1b[2m00:00:03.000000\x1b[0m  1 ")
	s.later("traces/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	if diff := cmp.Diff(merged, linesIn(t, path)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	out := r.out.String()
	for _, want := range []string{"  web-2/1 ", "\n\n5 events in 4.00s: file 5.", "\nSaved to " + path} {
		if strings.Count(out, want) == 0 {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(out, "\x1b[36mopenat"); n != 5 || strings.Contains(out, "were not shown") {
		t.Errorf("%d of 5 events are shown in\n%s", n, out)
	}
}

func TestTraceAsJSONLines(t *testing.T) {
	t.Chdir(t.TempDir())
	s := runningTrace(t)
	r := start(t, s, nil, "trace", "deploy/web", "-o", "json")
	r.out.await(t, `{"pod":"web-1","podUid":"u1","time":"1970-01-01T00:00:03`)
	s.later("traces/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	got := lines(t, []byte(r.out.String()))
	for _, want := range merged {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("no %q in %q", want, got)
		}
	}
	if len(got) != len(merged) || !strings.Contains(r.errOut.String(), "Saved to web-") {
		t.Errorf("%d lines, want %d; standard error\n%s", len(got), len(merged), r.errOut)
	}
	if found, err := filepath.Glob("web-*Z.ndjson"); err != nil || len(found) != 1 {
		t.Errorf("saved as %v (%v)", found, err)
	}
}

func TestTraceQuiet(t *testing.T) {
	s := runningTrace(t)
	s.onCreate = s.twoPods(v1alpha1.PhaseCompleted)
	r := sonde(t, s, report.ExitOK, "trace", "web", "-q", "-o", filepath.Join(t.TempDir(), "web.ndjson"))
	if out := r.out.String(); !strings.HasPrefix(out, "5 events in") {
		t.Errorf("unwanted lines:\n%s", out)
	}
}

// A reader that exits early, like head, stops the trace. The events so far are saved.
func TestTraceIntoAReaderThatLeaves(t *testing.T) {
	s := runningTrace(t)
	s.onStop = s.twoPods(v1alpha1.PhaseCompleted)
	path := filepath.Join(t.TempDir(), "web.ndjson")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := startTo(t, s, write, "trace", "deploy/web", "-o", path)
	b := make([]byte, 16)
	if _, err := read.Read(b); err != nil || string(b[:8]) != "00:00:01" {
		t.Errorf("read %q, %v", b, err)
	}
	read.Close()
	s.later("traces/web-x7k2p", func(v1alpha1.Capture) {
		whole := events(t, "web-1", "u1", nil, 1, 3, 5)
		s.files["u1/web-1-qwer.ndjson"] = whole[:strings.LastIndex(string(whole), `{"sonde":"account"`)]
	})
	r.await(t, report.ExitError)
	if diff := cmp.Diff(merged, linesIn(t, path)); diff != "" || !strings.Contains(r.errOut.String(), "broken pipe") {
		t.Errorf("lines (-want +got):\n%s\nstandard error %s", diff, r.errOut)
	}
}

// With an older operator, no events are shown while a trace runs. A note says so, and the file is saved.
func TestTraceWithoutLines(t *testing.T) {
	s := runningTrace(t)
	s.noLive = true
	path := filepath.Join(t.TempDir(), "web.ndjson")
	r := start(t, s, nil, "trace", "deploy/web", "-o", path)
	r.errOut.await(t, "Capturing")
	s.later("traces/web-x7k2p", s.twoPods(v1alpha1.PhaseCompleted))
	r.await(t, report.ExitOK)
	want := "Note: 5 of 5 events were not shown while the trace ran; they are in " + path
	if !strings.Contains(r.out.String(), want) {
		t.Errorf("no %q in\n%s", want, r.out)
	}
}

func TestTraceLineErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"a colour":           {[]string{"--color", "red"}, "write auto, always, never"},
		"JSON twice":         {[]string{"-o", "json", "--json"}, "choose one of the three"},
		"JSON, quietly":      {[]string{"-o", "json", "-q"}, "choose one of the three"},
		"JSON of FLAP":       {[]string{"-o", "json", "--format", "flap"}, "has no JSON lines"},
		"a gate's time":      {[]string{"--gate-timeout", "5m"}, "need --gate"},
		"a useless gate":     {[]string{"--gate", "--no-follow"}, "omit one of the two"},
		"another gate's end": {[]string{"--gate", "--gate-on-timeout", "Wait"}, "write Proceed or Fail"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, kind.Trace)
			r := sonde(t, s, report.ExitError, append([]string{"trace", "web"}, tc.args...)...)
			if !strings.Contains(r.errOut.String(), tc.want) || len(s.created) != 0 {
				t.Errorf("said\n%s\nwithout %q; made %v", r.errOut, tc.want, s.created)
			}
		})
	}
}
