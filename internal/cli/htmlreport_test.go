package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/sonde-operator/sonde/internal/cli/report"
	"github.com/sonde-operator/sonde/test/traffic"
)

// runReport runs the command in a directory of its own and returns the exit code and both outputs.
func runReport(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = Main(t.Context(), append([]string{"report"}, args...), Options{Streams: streams})
	return code, stdout.String(), stderr.String()
}

func TestReportOfAFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("in", 0o700); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join("in", "web.pcapng")
	if err := os.WriteFile(source, traffic.Shop(), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := runReport(t, source)
	if code != report.ExitOK || out != "" || errOut != "Saved to web.html. Open it in a browser.\n" {
		t.Fatalf("exit code %d, %q, %q", code, out, errOut)
	}
	b, err := os.ReadFile("web.html")
	if err != nil || !strings.Contains(string(b), "Deployment/web in namespace shop") || strings.Contains(string(b), "in/web.pcapng") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if info, err := os.Stat("web.html"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}

	if code, _, errOut := runReport(t, source); code != report.ExitError || !strings.Contains(errOut, "web.html exists: choose another name with -o, or overwrite it with --force") {
		t.Errorf("again: exit code %d, %q", code, errOut)
	}
	if code, _, errOut := runReport(t, source, "--force"); code != report.ExitOK {
		t.Errorf("with --force: exit code %d, %q", code, errOut)
	}
	if code, out, errOut := runReport(t, source, "-o", "-"); code != report.ExitOK || out != string(b) || errOut != "" {
		t.Errorf("to standard output: exit code %d, %d bytes, %q", code, len(out), errOut)
	}
	if left, err := filepath.Glob(".sonde-report*"); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestReportOfAnIncompleteFile(t *testing.T) {
	t.Chdir(t.TempDir())
	b := traffic.Shop()
	if err := os.WriteFile("web.pcapng", b[:len(b)/2+1], 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := runReport(t, "web.pcapng", "-o", "page.html"); code != report.ExitIncomplete || !strings.Contains(errOut, "Saved to page.html") {
		t.Errorf("exit code %d, %q", code, errOut)
	}
}

// TestReportOfAName downloads a capture and a trace, and leaves nothing but the pages.
func TestReportOfAName(t *testing.T) {
	s := withBoth(t)
	t.Chdir(t.TempDir())
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	sonde(t, s, report.ExitOK, "report", "packetcapture/web", "-o", "web.html")
	sonde(t, s, report.ExitOK, "report", "trace/web", "-o", "calls.html")
	for path, want := range map[string]string{
		"web.html": "<dd>5<small>", "calls.html": "1 events were lost and are in no file",
	} {
		b, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: no %q in %d bytes, %v", path, want, len(b), err)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 || s.accesses != 0 {
		t.Errorf("left over: %v, %d ResultAccesses, %v", left, s.accesses, err)
	}
	r := sonde(t, s, report.ExitError, "report", "nope")
	if said := r.errOut.String(); !strings.Contains(said, `"nope"`) || !strings.Contains(said, "There is no file nope") {
		t.Errorf("said %s", r.errOut)
	}
}

func TestReportRefusals(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("notes.txt", []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("old.pcap", []byte("\xd4\xc3\xb2\xa1\x02\x00\x04\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := traffic.Shop()
	copy(damaged[len(damaged)/2:], make([]byte, 1<<10))
	if err := os.WriteFile("damaged.pcapng", damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want string
	}{
		"another format":      {[]string{"old.pcap"}, "old.pcap is a pcap file, and not pcapng. To convert it:\n  editcap -F pcapng old.pcap old.pcapng"},
		"damaged":             {[]string{"damaged.pcapng"}, "the file is damaged: download it again"},
		"no argument":         {nil, "needs a FILE, or the NAME of a PacketCapture or Trace"},
		"no such file":        {[]string{"web.pcapng"}, "open the capture or trace: stat web.pcapng: no such file"},
		"no such directory":   {[]string{"./web"}, "no such file"},
		"not a capture":       {[]string{"notes.txt"}, "notes.txt is not a capture or trace: name a .pcapng or .ndjson file"},
		"output a directory":  {[]string{"notes.txt", "-o", "."}, ". is a directory: name a file with -o"},
		"output in no folder": {[]string{"notes.txt", "-o", "no/a.html"}, "notes.txt is not a capture"},
		"not a name":          {[]string{"pod/web"}, `"pod/web" is not the name of a capture`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if code, _, errOut := runReport(t, tc.args...); code != report.ExitError || !strings.Contains(errOut, tc.want) {
				t.Errorf("exit code %d, %q, want %q", code, errOut, tc.want)
			}
		})
	}
}
