package traceview

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// shell is the trace of a shell script in a container. All lines but the first and the last were written by the tracer.
func shell(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("testdata/shell.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// both shows events and sums them up.
type both struct {
	live    *Live
	summary *Summary
	lines   []string
	idle    int
}

func (b *both) Line(from *Source, line *tracefmt.Line) error {
	b.lines = append(b.lines, from.Name+": "+string(line.Raw))
	b.summary.Line(from, line)
	if line.Record == nil {
		return nil
	}
	return b.live.Show(from, line.Record)
}

func (b *both) Damaged(from *Source, err error) error {
	b.summary.Damaged(from, err)
	return nil
}

func (b *both) End(from *Source) { b.summary.End(from) }

func (b *both) Idle() error {
	b.idle++
	return nil
}

func view(t *testing.T, change func(*Live), sources ...*Source) (text string, s *both) {
	t.Helper()
	var out bytes.Buffer
	s = &both{live: NewLive(&out), summary: NewSummary()}
	if change != nil {
		change(s.live)
	}
	if err := Read(t.Context(), sources, s); err != nil {
		t.Fatal(err)
	}
	return out.String(), s
}

func TestShell(t *testing.T) {
	text, s := view(t, nil, NewSource("shell.ndjson", strings.NewReader(shell(t))))
	golden(t, "shell.live", text)
	golden(t, "shell.summary", s.summary.Text())
	if p := s.summary.Problems(); len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
	coloured, _ := view(t, func(l *Live) { l.Colour = true }, NewSource("shell.ndjson", strings.NewReader(shell(t))))
	if got := uncoloured(coloured); got != text {
		t.Errorf("the text differs with colours (-without +with):\n%s", cmp.Diff(text, got))
	}
	for _, want := range []string{cyan + "openat", red + "ENOENT", red + "SIGKILL", magenta + "exec", blue + "read", dim + "19:26:09"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("nothing is coloured as %q", want)
		}
	}
}

// A line is not wider than the terminal, with and without colours, and slow calls stand out.
func TestWidth(t *testing.T) {
	const event = `{"time":"1970-01-01T00:00:01.000000000Z","call":"openat","group":"file","pid":1,"hostPid":7,"tid":1,"hostTid":7,"uid":0,"comm":"web","ret":-1,"errno":"ENOENT","latencyNs":2000000000,"path":"/etc/wéb.conf"}` + "\n"
	const whole = "00:00:01.000000  1         web     openat       2.00s  ENOENT  /etc/wéb.conf\n"
	for name, tc := range map[string]struct {
		width int
		want  string
	}{
		"no limit":     {0, whole},
		"room for all": {76, whole},
		"one too few":  {75, "00:00:01.000000  1         web     openat       2.00s  ENOENT  /etc/wéb.co…\n"},
		"within it":    {64, "00:00:01.000000  1         web     openat       2.00s  ENOENT  …\n"},
		"before it":    {61, "00:00:01.000000  1         web     openat       2.00s  ENOENT\n"},
		"very narrow":  {8, "00:00:0…\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, colour := range []bool{false, true} {
				got, _ := view(t, func(l *Live) { l.Colour, l.Width = colour, func() int { return tc.width } }, NewSource("web", strings.NewReader(event)))
				if diff := cmp.Diff(tc.want, uncoloured(got)); diff != "" {
					t.Errorf("coloured %t (-want +got):\n%s", colour, diff)
				}
				if stands := strings.Contains(got, alarm+" 2.00s"); tc.width == 0 && stands != colour {
					t.Errorf("coloured %t: a slow call stands out: %t in %q", colour, stands, got)
				}
			}
		})
	}
}

func uncoloured(s string) string {
	for _, c := range []string{dim, red, green, yellow, blue, magenta, cyan, alarm, plain} {
		s = strings.ReplaceAll(s, c, "")
	}
	return s
}

// The summary of an incomplete trace names the missing parts.
func TestIncomplete(t *testing.T) {
	whole := shell(t)
	lines := strings.SplitAfter(whole, "\n")
	last := len(lines) - 2 // the account
	account := func(a tracefmt.Account) string {
		b, err := tracefmt.AppendAccount(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines[:last], "") + string(b)
	}
	const pod = "web-5c7765d854-9md72: "
	for name, tc := range map[string]struct {
		text  string
		want  []string
		wantS string // in the summary
	}{
		"whole":      {whole, nil, " None was lost.\n"},
		"no account": {strings.Join(lines[:last], ""), []string{pod + "the account at the end is missing: the tracer was killed or is still running, or its last file was not given"}, "\nINCOMPLETE: "},
		"cut off": {whole[:30000], []string{
			pod + "1 line cannot be read; the first: web.ndjson: line 115: the line is truncated: its writer was killed or is still running",
			pod + "the account at the end is missing: the tracer was killed or is still running, or its last file was not given",
		}, "113 events in "},
		"a line cut in the middle": {whole[:30000] + "\n" + strings.Join(lines[115:], ""), []string{
			pod + "1 line cannot be read; the first: web.ndjson: line 115: the line is not a JSON object",
			pod + "1 event of 225 that were written are missing here",
		}, "224 events in "},
		"the tracer was killed": {account(tracefmt.Account{Written: 225, Reason: "Killed", Message: "the probe ended with exit code 137"}), []string{pod + "the trace is Incomplete: Killed: the probe ended with exit code 137"}, ""},
		"no reason":             {account(tracefmt.Account{Written: 225}), []string{pod + "the trace is Incomplete: no reason was given"}, ""},
		"lost events": {
			account(tracefmt.Account{Written: 225, Complete: true, Lost: map[string]uint64{"rare": 1, "ring": 11, "recursion": 0}}), nil,
			" 12 events lost: ring 11, rare 1.\n",
		},
		"nothing": {"", []string{"web.ndjson: the account at the end is missing: the tracer was killed or is still running, or its last file was not given"}, "0 events.\n\nINCOMPLETE: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, s := view(t, nil, NewSource("web.ndjson", strings.NewReader(tc.text)))
			if diff := cmp.Diff(tc.want, s.summary.Problems()); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if text := s.summary.Text(); !strings.Contains(text, tc.wantS) {
				t.Errorf("no %q in\n%s", tc.wantS, text)
			}
		})
	}
}

func event(second int, call string, more string) string {
	return fmt.Sprintf(`{"time":"1970-01-01T00:00:%02dZ","call":%q,"group":"file","pid":1,"hostPid":7,"tid":1,"hostTid":7,"uid":0,"comm":"a"%s}`, second, call, more) + "\n"
}

func header(pod string) string { return `{"sonde":"trace","version":1,"pod":"` + pod + `"}` + "\n" }

const ended = `{"sonde":"account","written":2,"lost":{},"complete":true}` + "\n"

// Lines of several Pods are shown in the order of time, each with the name of its Pod.
func TestSeveralPods(t *testing.T) {
	text, s := view(t, func(l *Live) { l.Pods = true },
		NewSource("a", strings.NewReader(header("web-a")+event(1, "read", "")+event(4, "read", "")+ended)),
		NewSource("b", strings.NewReader(header("web-b")+event(2, "write", "")+event(3, "write", "")+ended)),
	)
	want := `00:00:01.000000  web-a/1   a       read
00:00:02.000000  web-b/1   a       write
00:00:03.000000  web-b/1   a       write
00:00:04.000000  web-a/1   a       read
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if p := s.summary.Problems(); p != nil {
		t.Errorf("problems: %q", p)
	}
	if got := s.summary.Text(); !strings.Contains(got, "\nweb-b/1  before   still there       2  [a]\n") {
		t.Errorf("no process with its Pod in\n%s", got)
	}
	_, s = view(t, nil,
		NewSource("a", strings.NewReader(header("web-a")+event(1, "read", `,"latencyNs":1500`)+ended)),
		NewSource("b", strings.NewReader(header("web-b")+event(2, "write", `,"latencyNs":2500`)+ended)),
	)
	if got := s.summary.Text(); !strings.Contains(got, "\n2.50µs  00:00:02.000000  web-b/1  a     write\n1.50µs  00:00:01.000000  web-a/1  a     read\n") {
		t.Errorf("no slow calls with their Pods in\n%s", got)
	}
	if s.idle == 0 {
		t.Error("Idle was not called before waiting for lines")
	}
}

// TestTwoTracesOfAPod: the whole one does not hide that the other's tracer was killed.
func TestTwoTracesOfAPod(t *testing.T) {
	of := func(job string) string {
		return `{"sonde":"trace","version":1,"jobId":"` + job + `","pod":"web-a","podUid":"u1"}` + "\n"
	}
	_, s := view(t, nil,
		NewSource("a", strings.NewReader(of("aaaa")+event(1, "read", ""))),
		NewSource("b", strings.NewReader(of("bbbb")+event(2, "write", "")+event(3, "write", "")+ended)),
	)
	want := []string{"web-a (jobId aaaa, Pod u1): the account at the end is missing: the tracer was killed or is still running, or its last file was not given"}
	if diff := cmp.Diff(want, s.summary.Problems()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestManyPodsInOneFile: as many as the summary has rows.
func TestManyPodsInOneFile(t *testing.T) {
	var headers, lines strings.Builder
	for i := range maxTraces {
		pod, uid := fmt.Sprintf("web-%d", i), fmt.Sprintf("u%d", i)
		fmt.Fprintf(&headers, `{"sonde":"trace","version":1,"jobId":"aaaa","pod":%q,"podUid":%q}`+"\n", pod, uid)
		for _, line := range []string{event(1, "read", ""), event(2, "read", ""), ended} {
			lines.Write(tracefmt.AppendWithPod(nil, []byte(strings.TrimSpace(line)), pod, ""))
		}
	}
	_, s := view(t, nil, NewSource("web.ndjson", strings.NewReader(headers.String()+lines.String())))
	if p := s.summary.Problems(); len(p) > 0 {
		t.Errorf("%d problems, the first: %s", len(p), p[0])
	}
}

// TestEventsThatAKernelLacks are none that were lost, and the summary names them nevertheless.
func TestEventsThatAKernelLacks(t *testing.T) {
	const text = `{"sonde":"trace","version":1,"pod":"web-a","missing":["fault"]}` + "\n"
	_, s := view(t, nil, NewSource("a", strings.NewReader(text+event(1, "mmap", "")+event(2, "mmap", "")+ended)))
	if got := s.summary.Text(); !strings.Contains(got, " None was lost. The kernel of a node does not report these events: fault.\n") {
		t.Errorf("the summary is\n%s", got)
	}
}

// One file may hold the traces of several Pods. Its lines name their Pod, and the summary is the same as for single files.
func TestSeveralPodsInOneFile(t *testing.T) {
	one := func(pod, uid string) string {
		return fmt.Sprintf(`{"sonde":"trace","version":1,"pod":%q,"podUid":%q}`, pod, uid) + "\n"
	}
	of := func(pod, uid, line string) string {
		return string(tracefmt.AppendWithPod(nil, []byte(strings.TrimSpace(line)), pod, uid))
	}
	const lost = `{"sonde":"account","written":2,"lost":{"ring":3},"complete":true}` + "\n"
	for name, tc := range map[string]struct {
		otherPod, uid, otherUID string // in the lines
		merged                  string
		want                    []string
	}{
		"of two names": {"web-b", "", "", of("web-b", "", lost) + of("web-a", "", ended), nil},
		"namesakes":    {"web-a", "u1", "u2", of("web-a", "u2", lost) + of("web-a", "u1", ended), nil},
		"one was killed": {"web-b", "", "", of("web-a", "", ended), []string{
			"web-b: the account at the end is missing: the tracer was killed or is still running, or its last file was not given",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := one("web-a", "u1") + one(tc.otherPod, "u2") +
				of("web-a", tc.uid, event(1, "read", "")) + of(tc.otherPod, tc.otherUID, event(2, "write", "")) +
				of(tc.otherPod, tc.otherUID, event(3, "write", "")) + of("web-a", tc.uid, event(4, "read", "")) + tc.merged
			got, s := view(t, func(l *Live) { l.Pods = true }, NewSource("web.ndjson", strings.NewReader(text)))
			want := fmt.Sprintf(`00:00:01.000000  web-a/1  a       read
00:00:02.000000  %[1]s/1  a       write
00:00:03.000000  %[1]s/1  a       write
00:00:04.000000  web-a/1  a       read
`, tc.otherPod)
			if diff := cmp.Diff(want, strings.ReplaceAll(got, "/1   ", "/1  ")); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, s.summary.Problems()); diff != "" || s.summary.Pods() != 2 {
				t.Errorf("%d Pods, problems (-want +got):\n%s", s.summary.Pods(), diff)
			}
			if len(tc.want) == 0 && !strings.Contains(s.summary.Text(), " 3 events lost: ring 3.") {
				t.Errorf("nothing of the lost events:\n%s", s.summary.Text())
			}
			if got := strings.Count(s.summary.Text(), "before   still there       2  [a]\n"); got != 2 {
				t.Errorf("%d processes, want one of each Pod:\n%s", got, s.summary.Text())
			}
		})
	}
}

// A trace in two files has one account, in the last file.
func TestFilesOfAPod(t *testing.T) {
	_, s := view(t, nil,
		NewSource("2", strings.NewReader(header("web-a")+event(2, "read", "")+ended)),
		NewSource("1", strings.NewReader(header("web-a")+event(1, "read", ""))),
	)
	if p := s.summary.Problems(); p != nil {
		t.Errorf("problems: %q", p)
	}
}

func TestReadErrors(t *testing.T) {
	stop := errors.New("no room")
	none := func(*Source, *tracefmt.Line) error { return nil }
	for name, tc := range map[string]struct {
		in        io.Reader
		line      func(*Source, *tracefmt.Line) error
		wantError error
	}{
		"no trace":      {strings.NewReader("\x7fELF"), none, tracefmt.ErrNotTrace},
		"a broken pipe": {strings.NewReader(event(1, "read", "")), func(*Source, *tracefmt.Line) error { return stop }, stop},
		"a broken file": {broken{stop}, none, stop},
	} {
		t.Run(name, func(t *testing.T) {
			err := Read(t.Context(), []*Source{NewSource("web.ndjson", tc.in)}, lineSink(tc.line))
			if !errors.Is(err, tc.wantError) {
				t.Errorf("error %v, want %v", err, tc.wantError)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Read(ctx, []*Source{NewSource("", broken{stop})}, lineSink(none)); err != nil {
		t.Errorf("Read after its context ended: %v", err)
	}
}

type lineSink func(*Source, *tracefmt.Line) error

func (l lineSink) Line(from *Source, line *tracefmt.Line) error { return l(from, line) }
func (l lineSink) Damaged(*Source, error) error                 { return nil }
func (l lineSink) End(*Source)                                  {}
func (l lineSink) Idle() error                                  { return nil }

type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }
