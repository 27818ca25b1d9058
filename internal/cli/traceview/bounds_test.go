package traceview

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// A target can make up any number of names. Those beyond the limits are counted.
func TestBounds(t *testing.T) {
	s := NewSummary()
	from := NewSource("x", strings.NewReader(""))
	const further = 5
	add := func(r tracefmt.Record) {
		r.Took, r.HasRet, r.Ret, r.Time = 1, true, -1, time.Unix(1, 0)
		s.Line(from, &tracefmt.Line{Record: &r})
	}
	for i := range maxFiles + further {
		add(tracefmt.Record{Call: "read", Errno: "EIO", Path: fmt.Append(nil, "/", i)})
	}
	for i := range maxCalls - 1 + further {
		add(tracefmt.Record{Call: fmt.Sprint("call", i), Errno: "EIO"})
	}
	for i := range maxFailures - maxCalls + further {
		add(tracefmt.Record{Call: "read", Errno: fmt.Sprint("E", i)})
	}
	for i := range maxProcesses + further {
		add(tracefmt.Record{Call: callExec, HostPID: uint32(i + 1), HostTID: uint32(i + 1)})
	}
	for i := range maxGroups + further {
		add(tracefmt.Record{Call: "read", Errno: "EIO", Group: fmt.Sprint(i)})
	}
	for i := range maxCalls + further {
		name := fmt.Sprint("call", i)
		s.Line(from, &tracefmt.Line{Account: &tracefmt.Account{Lost: map[string]uint64{name: 1}, LostCalls: map[string]uint64{name: 1}}})
	}
	for i := range maxTraces + further {
		s.Damaged(NewSource(fmt.Sprint(i), nil), io.ErrUnexpectedEOF)
	}
	got := map[string]uint64{
		"files": s.files.other, "calls": s.calls.other, "failures": s.failures.other, "processes": s.processes.other, "groups": s.otherGroups,
		"lost calls": s.lost.calls["other"], "places": s.lost.places["other"],
	}
	// A process, a group and a trace exist already. Some of the other calls fail with new errors.
	want := map[string]uint64{
		"files": further, "calls": further, "failures": further + further, "processes": further + 1, "groups": further + 1,
		"lost calls": further, "places": maxCalls - maxGroups + further,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lumped together (-want +got):\n%s", diff)
	}
	if len(s.traces) > maxTraces+1 {
		t.Errorf("%d traces", len(s.traces))
	}
	if text := s.Text(); !strings.Contains(text, fmt.Sprintf("… and %d calls on other files, which are not listed one by one\n", further)) {
		t.Errorf("the summary omits it:\n%s", text)
	}
}

// Headers of up to 1 MiB do not stay in memory, nor do long names of Pods in other lines.
func TestMemoryOfHeaders(t *testing.T) {
	const most, headers = 4 << 20, 64
	long := strings.Repeat("x", 1<<19)
	for name, line := range map[string]string{
		"command":  `{"sonde":"trace","version":1,"pod":"p%d","podUid":"u","command":"` + long + `"}` + "\n",
		"pod":      `{"sonde":"trace","version":1,"pod":"p%d` + long + `","podUid":"u"}` + "\n",
		"accounts": `{"sonde":"account","pod":"p%d` + long + `","written":0,"lost":{},"complete":true}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			before := heapInUse()
			s := NewSource("x", &repeated{line: line, left: headers})
			sum := NewSummary()
			if err := Read(t.Context(), []*Source{s}, &both{live: NewLive(io.Discard), summary: sum}); err != nil {
				t.Fatal(err)
			}
			if used := heapInUse() - before; used > most {
				t.Errorf("%d MiB are in use, want at most %d", used>>20, most>>20)
			}
			if n := len(s.headers); n < headers {
				t.Errorf("%d headers, want at least %d", n, headers)
			}
			runtime.KeepAlive(sum)
		})
	}
}

// repeated returns a line again and again, with a number.
type repeated struct {
	line string
	left int
	buf  string
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.buf == "" {
		if r.left == 0 {
			return 0, io.EOF
		}
		r.left--
		r.buf = fmt.Sprintf(r.line, r.left)
	}
	n := copy(b, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// heapInUse returns the bytes of the heap that something refers to.
func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The most frequent failure is shown, even if other calls failed before it or between.
func TestMostOften(t *testing.T) {
	s := NewSummary()
	from := NewSource("x", strings.NewReader(""))
	add := func(path string) {
		s.Line(from, &tracefmt.Line{Record: &tracefmt.Record{Call: "openat", Errno: "ENOENT", Path: []byte(path), Took: 1, HasRet: true, Ret: -1, Time: time.Unix(1, 0)}})
	}
	for i := range 100 {
		add(fmt.Sprint("/start/", i))
	}
	const often = 70
	for i := range often {
		add("/etc/prices.json")
		add(fmt.Sprint("/tmp/", i))
	}
	for i := range 3 { // replaces an entry with a count of one, and inherits its count
		add(fmt.Sprint("/end/", i))
	}
	if text, want := s.Text(), fmt.Sprintf("\n  %d  openat  ENOENT  /etc/prices.json\n", 100+2*often+3); !strings.Contains(text, want) {
		t.Errorf("no %q in\n%s", want, text)
	}
}

// No name that a target chooses can send a control sequence to the terminal.
func FuzzShown(f *testing.F) {
	f.Add([]byte(header("a\x1b[2J") + event(1, "openat", `,"container":"\u001b]0;x\u0007","args":{"pathname":"\u202e"},"errno":"ENOENT","path":"\u009b2J"`)))
	f.Add([]byte(`{"sonde":"account","written":0,"lost":{"\u001b":18446744073709551615,"ring":2},"lostCalls":{"\u009b2J":3,"a\n":1}}` + "\n"))
	f.Add([]byte(event(1, "exec", `,"args":{"argv":["\u001b","a b"]},"path":"/x"`) + event(1, "exit", `,"args":{"signal":"\n"},"ret":0`)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var out bytes.Buffer
		s := &both{live: NewLive(&out), summary: NewSummary()}
		s.live.Pods = true
		_ = Read(t.Context(), []*Source{NewSource("\x1b", bytes.NewReader(b))}, s)
		for _, r := range out.String() + s.summary.Text() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q is shown", r)
			}
		}
	})
}
