package htmlreport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
	"github.com/sonde-operator/sonde/test/traffic"
)

// file writes a file and returns its path.
func file(t *testing.T, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func page(t *testing.T, path string, outcome Outcome) *Page {
	t.Helper()
	p, err := Read(t.Context(), path, filepath.Base(path), outcome)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t *testing.T, p *Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func figure(p *Page, label string) string {
	for _, f := range p.Figures {
		if f.Label == label {
			return f.Value
		}
	}
	return ""
}

// cells returns the texts of a table, found by how its caption begins.
func cells(p *Page, caption string) [][]string {
	var rows [][]string
	for _, s := range p.Sections {
		for _, table := range s.Tables {
			if !strings.HasPrefix(table.Caption, caption) {
				continue
			}
			for _, row := range table.Rows {
				var texts []string
				for _, c := range row {
					texts = append(texts, c.Text)
				}
				rows = append(rows, texts)
			}
		}
	}
	return rows
}

// TestPolicyNamesTheScripts recomputes the hashes of what the page has.
func TestPolicyNamesTheScripts(t *testing.T) {
	all := text(t, page(t, file(t, filepath.Join(t.TempDir(), "a.pcapng"), traffic.Shop()), Outcome{}))
	policy := html.UnescapeString(regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(all)[1])
	found := 0
	for _, m := range regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(all, -1) {
		sum := sha256.Sum256([]byte(m[1]))
		if !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Errorf("the policy does not allow the script or style that begins with %.60q", m[1])
		}
		found++
	}
	if found != 4 || strings.Count(policy, "sha256-") != 4 {
		t.Errorf("%d scripts and styles, policy %s", found, policy)
	}
	for _, want := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy lacks %s", want)
		}
	}
	if i := strings.Index(all, "http-equiv"); i > strings.Index(all, "<style") {
		t.Error("the policy stands behind what it is for")
	}
	if !strings.Contains(all, "Copyright (c) 2022 Leon Sorokin") {
		t.Error("the licence of the library is missing")
	}
}

func TestCapturePage(t *testing.T) {
	p := page(t, file(t, filepath.Join(t.TempDir(), "web.pcapng"), traffic.Shop()), Outcome{})
	if p.Title != "Deployment/web in namespace shop" || p.Verdict.Level != LevelWarning {
		t.Errorf("title %q, verdict %+v", p.Title, p.Verdict)
	}
	got := map[string]string{}
	for _, f := range p.Facts {
		got[f.Name] = f.Value
	}
	want := map[string]string{
		"Source": "web.pcapng", "Began": "2026-11-20 13:41:20.000 UTC", "Lasted": "30.0 s",
		"Pods": "shop/web-5c7765d854-9md72, shop/web-5c7765d854-t6nd4", "Capture": "PacketCapture shop/web-x7k2p",
		"Filter": "none, every packet was wanted", "Requested by": "alice@example.com", "Written by": "sonde test",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	var sections []string
	for _, s := range p.Sections {
		sections = append(sections, s.ID)
	}
	if diff := cmp.Diff([]string{"timeline", "pods", "conversations", "tcp", "dns", "http", "interfaces"}, sections); diff != "" {
		t.Errorf("sections (-want +got):\n%s", diff)
	}
	if n := len(cells(p, "Conversations")); n != maxRows+troubledRows {
		t.Errorf("%d conversations are shown", n)
	}
	if marks := p.Sections[0].Charts[0].Marks; len(marks) != 1 || marks[0] != (Mark{0, 30}) {
		t.Errorf("drops are marked at %v", marks)
	}
}

// TestQuietCapture has no sections about what there is nothing of.
func TestQuietCapture(t *testing.T) {
	f := traffic.New()
	iface := f.Interface("eth0", "shop/web, node n1", 0)
	f.Wait(time.Second)
	f.Statistics(iface, traffic.Start, 0, 0)
	p := page(t, file(t, filepath.Join(t.TempDir(), "quiet.pcapng"), f.Bytes()), Outcome{})
	if p.Verdict.Level != LevelPlain || p.Title != "quiet.pcapng" || len(p.Sections) != 4 || len(p.Findings) != 0 {
		t.Errorf("%+v", p)
	}
	text(t, p)
}

func TestVerdicts(t *testing.T) {
	b, open, quiet, late := traffic.Shop(), traffic.New(), traffic.New(), traffic.New()
	open.Interface("eth0", "", 0)
	quiet.Statistics(quiet.Interface("eth0", "shop/web, node n1", 0), traffic.Start, 0, 0)
	eth0 := late.Interface("eth0", "", 0)
	late.Statistics(eth0, traffic.Start, 0, 0)
	late.Wait(time.Second)
	late.Frame(eth0, 0, make([]byte, 60))
	tests := map[string]struct {
		b       []byte
		outcome Outcome
		want    Level
		text    string // of the verdict or of a reason
	}{
		"a whole file":             {quiet.Bytes(), Outcome{}, LevelPlain, "The file shows no loss."},
		"a whole capture":          {quiet.Bytes(), Outcome{Known: true, Complete: true}, LevelGood, "every packet that passed the filter"},
		"a limit":                  {quiet.Bytes(), Outcome{Known: true, Complete: true, Limited: true}, LevelGood, "Complete up to a limit of the capture"},
		"a limit of a ring":        {quiet.Bytes(), Outcome{Known: true, Complete: true, Limited: true, Overwritten: 1}, LevelGood, "that the ring of files still had"},
		"a whole ring":             {quiet.Bytes(), Outcome{Known: true, Complete: true, Overwritten: 1}, LevelGood, "that the ring of files still had"},
		"dropped":                  {b, Outcome{}, LevelWarning, "37 packets were dropped"},
		"without statistics":       {open.Bytes(), Outcome{}, LevelWarning, "no closing statistics of 1 interface."},
		"packets after them":       {late.Bytes(), Outcome{}, LevelWarning, "packets of 1 interface from after the closing statistics."},
		"cut in a packet":          {b[:len(b)/2+1], Outcome{}, LevelBad, "was killed, or is still running"},
		"what the cluster knows":   {b, Outcome{Known: true, Complete: true, Notes: []string{"one note"}}, LevelWarning, "one note"},
		"the cluster has problems": {b, Outcome{Known: true, Problems: []string{"web-1 is Failed: TargetGone"}}, LevelBad, "TargetGone"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := page(t, file(t, filepath.Join(t.TempDir(), "a.pcapng"), tc.b), tc.outcome).Verdict
			if v.Level != tc.want || !strings.Contains(v.Text+strings.Join(v.Reasons, "\n"), tc.text) {
				t.Errorf("%+v, want %s with %q", v, tc.want, tc.text)
			}
		})
	}
}

func TestTracePage(t *testing.T) {
	p := page(t, "../traceview/testdata/shell.ndjson", Outcome{})
	if p.Verdict.Level != LevelPlain || !strings.HasPrefix(p.Verdict.Text, "The file shows no loss.") {
		t.Errorf("verdict of a file alone: %+v", p.Verdict)
	}
	p = page(t, "../traceview/testdata/shell.ndjson", Outcome{Known: true, Complete: true})
	if p.Title != "Deployment/web in namespace shop" || p.Verdict.Level != LevelGood || figure(p, "Events") != "225" || figure(p, "Failed calls") != "10" {
		t.Errorf("title %q, verdict %+v, figures %+v", p.Title, p.Verdict, p.Figures)
	}
	want := []string{"openat", "569 µs", "27", "1", "21.1 µs", "256 µs"}
	if diff := cmp.Diff(want, cells(p, "Calls")[0]); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	want = []string{`/srv/e` + "\x1b" + `[2Jx`, "269 µs", "4", "0 B", "1 B"}
	if diff := cmp.Diff(want, cells(p, "Files")[0]); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	want = []string{"access", "ENOENT", "8", "/etc/ld.so.preload R_OK"}
	if diff := cmp.Diff(want, cells(p, "Failed")[0]); diff != "" {
		t.Errorf("failures (-want +got):\n%s", diff)
	}
	want = []string{`sh -c "kill -9 $$"`, "web/9", "web-5c7765d854-9md72", "19:26:09.590", "SIGKILL", "15"}
	if diff := cmp.Diff(want, cells(p, "Processes")[6]); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if all := text(t, p); strings.Contains(all, "\x1b") || !strings.Contains(all, `/srv/e\x1b[2Jx`) {
		t.Error("the name of a file is not escaped")
	}
}

func TestIncompleteTrace(t *testing.T) {
	b, err := os.ReadFile("../traceview/testdata/shell.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	p := page(t, file(t, filepath.Join(t.TempDir(), "a.ndjson"), bytes.Join(lines[:50], nil)), Outcome{})
	if p.Verdict.Level != LevelBad || !strings.Contains(strings.Join(p.Verdict.Reasons, ""), "the account at the end is missing") {
		t.Errorf("%+v", p.Verdict)
	}
}

// TestFlap reads the lines that the tracer writes.
func TestFlap(t *testing.T) {
	dir := t.TempDir()
	var b []byte
	for i, call := range []string{"openat", "read"} {
		b = tracefmt.AppendFlap(b, &tracefmt.Record{
			Call: call, HostPID: 7, HostTID: 8, Comm: []byte("nginx"), HasRet: true, Ret: -1, Took: 3 * time.Millisecond,
			Args: []tracefmt.Arg{{Name: "pathname", Kind: tracefmt.Text, Text: []byte("/etc/x")}},
		}, time.Duration(i+100)*time.Second)
	}
	file(t, filepath.Join(dir, "trace_io_0.log"), append(b, "a damaged line\n"...))
	file(t, filepath.Join(dir, "trace_memory_0.log"), nil)
	p := page(t, dir, Outcome{})
	if got := cells(p, "Files"); len(got) != 1 || got[0][0] != "/etc/x" || got[0][1] != "6.00 ms" {
		t.Errorf("files %q", got)
	}
	if got := cells(p, "The slowest"); len(got) != 2 || got[0][0] != "3.00 ms" || got[0][5] != "nginx" {
		t.Errorf("slowest %q", got)
	}
	if p.Verdict.Level != LevelWarning || !strings.Contains(p.Sections[0].Intro, "uptime of 100 s") {
		t.Errorf("verdict %+v, %s", p.Verdict, p.Sections[0].Intro)
	}
}

// TestDirectory merges the files of several Pods.
func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, pod := range []string{"a", "b"} {
		f := traffic.New()
		iface := f.Interface("eth0", "shop/"+pod+", node n1", 0)
		f.Wait(time.Second)
		f.Statistics(iface, traffic.Start, 0, 0)
		file(t, filepath.Join(dir, pod+".pcapng"), f.Bytes())
	}
	file(t, filepath.Join(dir, "notes.txt"), []byte("not read"))
	if got := cells(page(t, dir, Outcome{}), "Interfaces"); len(got) != 2 || got[0][0] != "shop/a" || got[1][0] != "shop/b" {
		t.Errorf("interfaces %q", got)
	}
}

// TestCutFileInADirectory: the page of merged files says that one of them ends within a packet.
func TestCutFileInADirectory(t *testing.T) {
	dir, b := t.TempDir(), traffic.Shop()
	file(t, filepath.Join(dir, "a.pcapng"), b)
	file(t, filepath.Join(dir, "b.pcapng"), b[:len(b)/2+1])
	if v := page(t, dir, Outcome{}).Verdict; v.Level != LevelBad || !strings.Contains(v.Text, "ends within a packet") {
		t.Errorf("%+v", v)
	}
}

func TestRefusedFiles(t *testing.T) {
	dir := t.TempDir()
	mixed, empty := filepath.Join(dir, "mixed"), filepath.Join(dir, "empty")
	for _, d := range []string{mixed, empty} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file(t, filepath.Join(mixed, "a.pcapng"), traffic.Shop())
	file(t, filepath.Join(mixed, "b.ndjson"), []byte("{}\n"))
	tests := map[string]struct{ path, want string }{
		"missing":      {filepath.Join(dir, "no.pcapng"), "no such file"},
		"another kind": {file(t, filepath.Join(dir, "a.html"), []byte("<!doctype html>")), "name a .pcapng or .ndjson file"},
		"mixed":        {mixed, "is of another kind than the other files"},
		"empty":        {empty, "name a directory with .pcapng, .ndjson or .log files"},
		"damaged":      {file(t, filepath.Join(dir, "a.pcapng"), []byte("\n\r\r\n0123456789abcdef")), "not a valid pcapng stream"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(t.Context(), tc.path, name, Outcome{}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestInterruptedRead(t *testing.T) {
	path := file(t, filepath.Join(t.TempDir(), "a.pcapng"), traffic.Shop())
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted)
	for _, path := range []string{path, "../traceview/testdata/shell.ndjson"} {
		if _, err := Read(ctx, path, "a", Outcome{}); !errors.Is(err, interrupted) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestVisible(t *testing.T) {
	tests := map[string]string{
		"plain":            "plain",
		"<b>&\"'":          "<b>&\"'", // html/template escapes these
		"a\u202eb":         `a\u202eb`,
		"\x1b[2J\x00":      `\x1b[2J\x00`,
		"\xff\u00a0\u2066": `\xff\u00a0\u2066`,
		"\U000e0041":       `\U000e0041`,
		"日本 שלום":          "日本 שלום",
		"\ufffd":           `\ufffd`,
	}
	for in, want := range tests {
		if got := visible(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
	if long := visible(strings.Repeat("\x00", 1000)); len(long) > 4*maxShown {
		t.Errorf("%d bytes", len(long))
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		number(0): "0", number(999): "999", number(1000): "1,000", number(-1234567): "-1,234,567", number(uint64(12345)): "12,345",
		span(0): "0 ns", span(1500): "1.50 µs", span(2 * time.Second): "2.00 s", span(3 * time.Minute): "3m0s",
		bound(0): "0 ns", bound(2 * time.Millisecond): "2 ms", percent(1, 0): none, percent(1, 8): "12.5%",
		plural(1, "file", "files"): "1 file", plural(2, "file", "files"): "2 files",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// FuzzFlap converts lines that anyone may have written.
func FuzzFlap(f *testing.F) {
	f.Add([]byte("100 {pid=1 tid=2 proc=a}{EN read}{fd=3}\n200 {pid=1 tid=2 proc=a}{EX read}{ret=-1 latency=5}\n"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var out bytes.Buffer
		if err := convertFlap(&out, "a", bytes.NewReader(b)); err != nil {
			return
		}
		r := tracefmt.NewReader(&out)
		for {
			if _, err := r.Next(); err != nil {
				if _, one := errors.AsType[*tracefmt.LineError](err); !one {
					return
				}
			}
		}
	})
}
