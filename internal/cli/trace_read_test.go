package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const (
	traceHead  = `{"sonde":"trace","version":1,"pod":"web-1"}` + "\n"
	traceOne   = `{"time":"1970-01-01T00:00:01.000000000Z","call":"openat","group":"file","pid":1,"hostPid":7,"tid":1,"hostTid":7,"uid":0,"comm":"web","ret":-1,"errno":"ENOENT","latencyNs":1500,"path":"/etc/web.conf"}` + "\n"
	traceTwo   = `{"time":"1970-01-01T00:00:02.000000000Z","call":"exit","group":"process","pid":1,"hostPid":7,"tid":1,"hostTid":7,"uid":0,"comm":"web","ret":3}` + "\n"
	traceAll   = `{"sonde":"account","written":2,"lost":{"ring":4},"lostCalls":{"openat":3,"read":1},"complete":true,"reason":"Duration"}` + "\n"
	wholeTrace = traceHead + traceOne + traceTwo + traceAll

	liveText = `00:00:01.000000  1         web     openat      1.50µs  ENOENT  /etc/web.conf
00:00:02.000000  1         web     exit                     3
`
	summaryText = `2 events in 1.00s: file 1, process 1. 4 events lost: ring 4.

Lost events, by call:
COUNT  CALL
    3  openat
    1  read

Files, by time of calls:
  TIME  CALLS  READ  WRITTEN  FILE
1.50µs      1   0 B      0 B  /etc/web.conf

Slowest calls:
  TOOK  ENDED            PROCESS  NAME  CALL    RESULT  ABOUT
1.50µs  00:00:01.000000  1        web   openat  ENOENT  /etc/web.conf

How long calls took:
  FROM   BELOW  CALLS
1.02µs  2.05µs      1  ########################################

Failed calls:
COUNT  CALL    ERROR   MOST OFTEN
    1  openat  ENOENT  /etc/web.conf

Calls, by time:
COUNT  FAILED    TIME    MEAN  LONGEST  CALL
    1       1  1.50µs  1.50µs   1.50µs  openat

Processes:
PROCESS  STARTED  ENDED WITH  EVENTS  COMMAND
1        before   3                2  [web]
`
)

// runTrace runs a command that needs no cluster.
func runTrace(t *testing.T, in string, colour bool, args ...string) (code int, out, errOut string) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	o, e := newOutput(), newOutput()
	code = Main(t.Context(), append([]string{"trace", "read"}, args...), Options{
		Streams: genericiooptions.IOStreams{In: strings.NewReader(in), Out: o, ErrOut: e}, Colour: colour,
	})
	return code, o.String(), e.String()
}

func traceFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "web.ndjson")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTraceRead(t *testing.T) {
	const missing = "the account at the end is missing: the tracer was killed or is still running, or its last file was not given\n"
	for name, tc := range map[string]struct {
		args       []string
		wantCode   int
		wantOut    string
		wantErrOut string
	}{
		"lines and summary": {nil, 0, liveText + "\n" + summaryText, ""},
		"summary":           {[]string{"-o", "summary"}, 0, summaryText, ""},
		"json":              {[]string{"--output", "json"}, 0, wholeTrace, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for from, in := range map[string]string{traceFile(t, wholeTrace): "", "-": wholeTrace} {
				code, out, errOut := runTrace(t, in, false, append(tc.args, from)...)
				if code != tc.wantCode || errOut != tc.wantErrOut {
					t.Errorf("%s: code %d, standard error %q", from, code, errOut)
				}
				if diff := cmp.Diff(tc.wantOut, out); diff != "" {
					t.Errorf("%s (-want +got):\n%s", from, diff)
				}
			}
		})
	}
	for name, tc := range map[string]struct {
		text, output, wantOut, wantErrOut string
	}{
		"nothing":              {"", "summary", "0 events.\n\nINCOMPLETE: some of what was traced is missing here.\n  standard input: " + missing, ""},
		"no account":           {traceHead + traceOne, "summary", "\nINCOMPLETE: some of what was traced is missing here.\n  web-1: " + missing, ""},
		"no account, in JSON":  {traceHead + traceOne, "json", traceHead + traceOne, "INCOMPLETE: web-1: " + missing},
		"cut off, in JSON":     {traceHead + traceOne + traceTwo[:20], "json", traceHead + traceOne, "the line is truncated"},
		"damaged in the midst": {traceHead + traceOne[9:] + traceTwo + traceAll, "summary", "1 event of 2 that were written are missing here", ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runTrace(t, tc.text, false, "-", "-o", tc.output)
			if code != 3 || !strings.Contains(out, tc.wantOut) || !strings.Contains(errOut, tc.wantErrOut) {
				t.Errorf("code %d, standard error %q, output:\n%s", code, errOut, out)
			}
		})
	}
}

// A filter shows only matching events and says how many of all they are. Excluded events are not reported as missing.
func TestTraceReadFiltered(t *testing.T) {
	const line = "00:00:01.000000  1         web     openat      1.50µs  ENOENT  /etc/web.conf\n"
	for name, tc := range map[string]struct {
		args []string
		want string // its beginning
	}{
		"groups":      {[]string{"--events", "io,file"}, line + "\n1 of 2 events in 0ns: file 1. 4 events lost: ring 4.\n"},
		"a call":      {[]string{"--call", "openat"}, line + "\n1 of 2 events"},
		"both":        {[]string{"--events", "process", "--call", "openat"}, liveText + "\n2 events in 1.00s"},
		"a name":      {[]string{"--comm", "sh"}, "\n0 of 2 events. 4 events lost"},
		"a container": {[]string{"--container", "log", "--container", "web"}, "\n0 of 2 events. 4 events lost"},
		"a Pod":       {[]string{"--pod", "web-2"}, "\n0 of 2 events. 4 events lost"},
		"Pods":        {[]string{"--pod", "web-2,web-*"}, liveText + "\n2 events in 1.00s"},
		"latency":     {[]string{"--min-latency", "1501ns"}, "00:00:02.000000  1         web     exit                     3\n\n1 of 2 events"},
		"failed":      {[]string{"--failed"}, line + "\n1 of 2 events"},
		"summary":     {[]string{"--failed", "-o", "summary"}, "1 of 2 events in 0ns: file 1. 4 events lost: ring 4.\n\nLost events, by call:\n"},
		"json":        {[]string{"--failed", "-o", "json"}, traceHead + traceOne + traceAll},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := runTrace(t, wholeTrace, false, append(tc.args, "-")...)
			if code != 0 || errOut != "" || !strings.HasPrefix(out, tc.want) {
				t.Errorf("code %d, standard error %q, output\n%s\nwant at its beginning\n%s", code, errOut, out, tc.want)
			}
		})
	}
}

// Lines of several files, as --keep-separate saves them, are printed with their Pod and can be read again.
func TestTraceReadSeveralAsJSON(t *testing.T) {
	of := func(pod, uid, event string) string {
		return `{"sonde":"trace","version":1,"pod":"` + pod + `","podUid":"` + uid + `"}` + "\n" + event +
			`{"sonde":"account","written":1,"lost":{},"complete":true}` + "\n"
	}
	// Two Pods of one name, as when a StatefulSet restarts one.
	one, two := traceFile(t, of("web-1", "u1", traceOne)), traceFile(t, of("web-1", "u2", traceTwo))
	code, out, errOut := runTrace(t, "", false, one, two, "-o", "json")
	named := func(uid, line string) string { return `{"pod":"web-1","podUid":"` + uid + `",` + line[1:] }
	for _, want := range []string{named("u1", traceOne), named("u2", traceTwo), named("u2", `{"sonde":"account","written":1,`)} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if code != 0 || errOut != "" || strings.Count(out, "\n") != 6 {
		t.Errorf("code %d, standard error %q, output\n%s", code, errOut, out)
	}
	if code, again, _ := runTrace(t, out, false, "-", "-o", "json"); code != 0 || again != out {
		t.Errorf("read again with code %d, it is another:\n%s", code, cmp.Diff(out, again))
	}
}

// A file may have any characters. On a terminal those that could control it are escaped, and the lines mean the same.
func TestTraceReadJSONOnATerminal(t *testing.T) {
	const raw = "\u009b2J\x7f\u202e"
	line := strings.Replace(traceOne, "/etc/web.conf", raw, 1)
	file := traceFile(t, `{"sonde":"trace","version":1,"pod":"`+raw+`"}`+"\n"+line+`{"sonde":"account","written":1,"lost":{},"complete":true}`+"\n")
	for name, tc := range map[string]struct {
		width func() int
		want  string
	}{
		"terminal": {func() int { return 80 }, `\u009b2J\u007f\u202e`},
		"pipe":     {nil, raw},
	} {
		t.Run(name, func(t *testing.T) {
			out := newOutput()
			code := Main(t.Context(), []string{"trace", "read", "-o", "json", file}, Options{
				Streams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: newOutput()}, Width: tc.width,
			})
			if got := out.String(); code != 0 || strings.Count(got, tc.want) != 2 || strings.Count(got, "\n") != 3 {
				t.Errorf("code %d, want %q twice in\n%q", code, tc.want, got)
			}
		})
	}
}

func TestTraceReadInColour(t *testing.T) {
	for when, want := range map[string]bool{"auto": false, "always": true, "never": false} {
		if _, out, _ := runTrace(t, wholeTrace, false, "-", "--color", when); strings.Contains(out, "\x1b[") != want {
			t.Errorf("--color %s without a terminal, output:\n%q", when, out)
		}
	}
	if _, out, _ := runTrace(t, wholeTrace, true, "-", "--color", "never"); strings.Contains(out, "\x1b[") {
		t.Errorf("unwanted colours:\n%q", out)
	}
	code, out, _ := runTrace(t, wholeTrace, true, "-")
	if code != 0 || !strings.Contains(out, "\x1b[36mopenat") || !strings.HasSuffix(out, "\n"+summaryText) {
		t.Errorf("code %d, output:\n%q", code, out)
	}
}

func TestTraceReadErrors(t *testing.T) {
	there := traceFile(t, wholeTrace)
	pcap := traceFile(t, "\x0a\x0d\x0d\x0a\x1c")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no file":     {nil, "at least one FILE"},
		"not there":   {[]string{"/does/not/exist"}, "no such file"},
		"a directory": {[]string{t.TempDir()}, "is a directory: name the .ndjson files in it"},
		"no trace":    {[]string{there, pcap}, pcap + ": this is not a trace in JSON lines: name the .ndjson file of a Trace"},
		"bad output":  {[]string{there, "-o", "yaml"}, "--output yaml: write summary or json, or omit the flag"},
		"no group":    {[]string{there, "--events", "file,openat"}, `--events openat: write one or more of ["process" "file" "io" "network" "memory" "signal"]; to select single calls, use --call`},
		"no latency":  {[]string{there, "--min-latency", "long"}, `invalid argument "long" for "--min-latency" flag`},
		"twice":       {[]string{"-", "-"}, "- is given twice"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, errOut := runTrace(t, "", false, tc.args...)
			if code != 1 || !strings.Contains(errOut, tc.want) {
				t.Errorf("code %d, %q, want %q", code, errOut, tc.want)
			}
		})
	}
}

// After an interrupt the summary of the events so far is printed.
func TestTraceReadInterrupted(t *testing.T) {
	in, write := io.Pipe()
	out, signals := newOutput(), make(chan os.Signal, 1)
	code := make(chan int, 1)
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	go func() {
		code <- Main(t.Context(), []string{"trace", "read", "-"}, Options{
			Streams: genericiooptions.IOStreams{In: in, Out: out, ErrOut: newOutput()}, Signals: signals,
		})
	}()
	if _, err := io.WriteString(write, traceHead+traceOne); err != nil {
		t.Fatal(err)
	}
	out.await(t, "openat") // more events may follow
	signals <- os.Interrupt
	if got := <-code; got != 130 || !strings.Contains(out.String(), "1 event in 0ns: file 1.") {
		t.Errorf("exit code %d, want 130 and a partial summary; output:\n%s", got, out)
	}
}
