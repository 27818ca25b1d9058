package tracefmt

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var opened = Record{
	Time: time.Date(2026, 11, 21, 19, 7, 43, 794401041, time.UTC), Call: "openat", Group: "file", Container: "web",
	PID: 7, TID: 9, HostPID: 1234, HostTID: 1236, UID: 1000, Comm: []byte("cat"),
	Args: []Arg{
		{Name: "dirfd", Number: -100},
		{Name: "pathname", Kind: Text, Text: []byte("a {b}\n")},
		{Name: "flags", Kind: Hex, Number: 0x80000},
		{Name: "mode", Kind: Hex},
	},
	HasRet: true, Ret: -1, Errno: "ENOENT", Took: 1500, Path: []byte("/srv/a {b}\n"),
}

func TestNDJSON(t *testing.T) {
	for name, tc := range map[string]struct {
		record Record
		want   string
	}{
		"a call": {opened, `{"time":"2026-11-21T19:07:43.794401041Z","call":"openat","group":"file","container":"web","pid":7,"hostPid":1234,"tid":9,"hostTid":1236,"uid":1000,"comm":"cat",` +
			`"args":{"dirfd":-100,"pathname":"a {b}\u000a","flags":"0x80000","mode":"0x0"},"ret":-1,"errno":"ENOENT","latencyNs":1500,"path":"/srv/a {b}\u000a"}` + "\n"},
		"a start": {
			Record{
				Time: time.Unix(1, 1), Call: "exec", Group: "process", PID: 1, HostPID: 2, TID: 3, HostTID: 4, Took: -1, Path: []byte("/bin/sh"),
				Args: []Arg{{Name: "argv", Kind: List, Text: []byte("sh\x00-c\x00echo \"hi\"\x00")}},
			},
			`{"time":"1970-01-01T00:00:01.000000001Z","call":"exec","group":"process","pid":1,"hostPid":2,"tid":3,"hostTid":4,"uid":0,"comm":"",` +
				`"args":{"argv":["sh","-c","echo \"hi\""]},"path":"/bin/sh"}` + "\n",
		},
		"a large number": {
			Record{Time: time.Unix(0, 0), Call: "read", Group: "io", Took: -1, Args: []Arg{{Name: "count", Kind: Unsigned, Number: -1}}},
			`{"time":"1970-01-01T00:00:00.000000000Z","call":"read","group":"io","pid":0,"hostPid":0,"tid":0,"hostTid":0,"uid":0,"comm":"","args":{"count":18446744073709551615}}` + "\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, string(ndjson(&tc.record))); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

// ndjson returns the line of a record from an encoder with an empty cache.
func ndjson(r *Record) []byte { return new(Encoder).Append(nil, r) }

// The cache of an Encoder does not change its lines.
func TestEncoder(t *testing.T) {
	var records []Record
	add := func(change func(r *Record)) {
		r := opened
		change(&r)
		records = append(records, r)
	}
	for _, at := range []time.Time{time.Unix(0, 5), opened.Time, opened.Time.Add(1), opened.Time.Add(time.Second), opened.Time, time.Unix(-3, 1), {}} {
		add(func(r *Record) { r.Time = at })
		add(func(r *Record) { r.Time = at.In(time.FixedZone("far", 5*3600+1800)) })
	}
	for range 2 {
		add(func(*Record) {})
		add(func(r *Record) { r.HostTID += 1 << 20 }) // same index in the cache
		add(func(r *Record) { r.HostPID++ })
		add(func(r *Record) { r.TID++ })
		add(func(r *Record) { r.PID++ })
		add(func(r *Record) { r.UID++ })
		add(func(r *Record) { r.Comm = []byte("ca\"") })
		add(func(r *Record) { r.Comm = nil })
		add(func(r *Record) { r.Container = "web2" })
		add(func(r *Record) { r.Container = "" })
		add(func(r *Record) { r.Pod, r.PodUID = "web-1", "u1" })
		add(func(r *Record) { r.Call, r.Group, r.Args, r.Path = "close", "io", nil, nil })
		add(func(r *Record) { *r = Record{Took: -1} })
	}
	var e Encoder
	for i := range records {
		if diff := cmp.Diff(string(ndjson(&records[i])), string(e.Append(nil, &records[i]))); diff != "" {
			t.Errorf("line %d (-a new one +the one):\n%s", i, diff)
		}
	}
}

// A text has only characters that print, and decodes to what it was.
func TestTextPrints(t *testing.T) {
	for name, text := range map[string]string{
		"printable": "/tmp/ä\U0001f600/x", "C0": "\x1b[2J", "C1": "/tmp/\u009b2J", "bidirectional": "a\u202eb\u2066c",
		"line separators": "a\u2028b\u2029", "beyond 16 bits": "a\U000e0041b", "no break": "a\u00a0\u200bb",
	} {
		t.Run(name, func(t *testing.T) {
			written := appendText(nil, []byte(text))
			for _, r := range string(written) {
				if !unicode.IsPrint(r) {
					t.Errorf("%q has %U", written, r)
				}
			}
			var got string
			if err := json.Unmarshal(written, &got); err != nil || got != text {
				t.Errorf("%s decodes to %q (%v), want %q", written, got, err, text)
			}
		})
	}
}

// A text is escaped correctly, wherever the byte is that needs it.
func TestTextEverywhere(t *testing.T) {
	const usual = "/usr/share/locale/x"
	for c := range 256 {
		for at := range usual {
			text, want := []byte(usual), []byte{'"'}
			text[at] = byte(c)
			for i := range text {
				one := appendText(nil, text[i:i+1])
				want = append(want, one[1:len(one)-1]...)
			}
			if got := string(appendText(nil, text)); got != string(append(want, '"')) {
				t.Fatalf("%q is written as %s", text, got)
			}
		}
	}
}

func TestHex(t *testing.T) {
	for shift := range 65 {
		for _, n := range []uint64{1 << shift, 1<<shift - 1, 0x123456789abcdef0 >> (shift % 64)} {
			if got, want := string(appendHex([]byte("0x"), n)), "0x"+strconv.FormatUint(n, 16); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	}
}

// For any path, the line is JSON with the same content as from encoding/json.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\\n\x00\x7f", "\xff\xfe", "ü…€😀", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b := ndjson(&Record{Call: "openat", Path: []byte(text), Took: -1})
		if strings.Count(string(b), "\n") != 1 {
			t.Errorf("more than one line: %q", b)
		}
		var got, want struct{ Path string }
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%v: %q", err, b)
		}
		plain, err := json.Marshal(map[string]string{"path": text})
		if err == nil {
			err = json.Unmarshal(plain, &want)
		}
		if err != nil || got != want {
			t.Errorf("%q, encoding/json has %q (%v)", got.Path, want.Path, err)
		}
	})
}

func TestFlap(t *testing.T) {
	hostile := opened
	hostile.Comm = []byte("}{EX x}\n")
	// Blanks, ends of lines and control characters beyond ASCII, and bytes that are not UTF-8.
	foreign := opened
	foreign.Comm = []byte("a\u00a0fd=1\u2028b\u0085c\u3000\u202e\xff\u7532")
	for name, tc := range map[string]struct {
		record Record
		want   []string // all groups of the expression but the whole line
	}{
		"openat": {opened, []string{
			"98500|1234|1236|cat|EN|openat|fname=a__b__", "100000|1234|1236|cat|EX|openat|ret=-1 latency=1500",
		}},
		"hostile": {hostile, []string{
			"98500|1234|1236|__EX_x__|EN|openat|fname=a__b__", "100000|1234|1236|__EX_x__|EX|openat|ret=-1 latency=1500",
		}},
		"hostile beyond ASCII": {foreign, []string{
			"98500|1234|1236|a_fd=1_b_c___\u7532|EN|openat|fname=a__b__", "100000|1234|1236|a_fd=1_b_c___\u7532|EX|openat|ret=-1 latency=1500",
		}},
		"read": {
			Record{Call: "read", Group: "io", HostPID: 1, HostTID: 1, HasRet: true, Ret: 5, Took: -1, Args: []Arg{{Name: "fd", Number: 3}, {Name: "buf", Kind: Hex, Number: 77}, {Name: "count", Kind: Unsigned, Number: 9}}},
			[]string{"100000|1|1|-|EN|read|fd=3 count=9", "100000|1|1|-|EX|read|ret=5"},
		},
		"dup2": {
			Record{Call: "dup2", HostPID: 1, HostTID: 1, Comm: []byte("sh"), HasRet: true, Ret: 1, Took: -1, Args: []Arg{{Name: "oldfd", Number: 3}, {Name: "newfd", Number: 1}}},
			[]string{"100000|1|1|sh|EN|dup2|oldfd=3 newfd=1", "100000|1|1|sh|EX|dup2|ret=1"},
		},
		"dup": {
			Record{Call: "dup", HostPID: 1, HostTID: 1, Comm: []byte("sh"), HasRet: true, Ret: 4, Took: -1, Args: []Arg{{Name: "oldfd", Number: 3}}},
			[]string{"100000|1|1|sh|EN|dup|fd=3", "100000|1|1|sh|EX|dup|ret=4"},
		},
		"stat": {
			Record{Call: "stat", HostPID: 1, HostTID: 1, Comm: []byte("sh"), HasRet: true, Took: -1, Args: []Arg{{Name: "pathname", Kind: Text, Text: []byte("/etc")}}},
			[]string{"100000|1|1|sh|EN|newstat|fname=/etc", "100000|1|1|sh|EX|newstat|ret=0"},
		},
		"mmap": {
			Record{Call: "mmap", Group: "memory", HostPID: 1, HostTID: 2, Comm: []byte("sh"), HasRet: true, Ret: 0x7f0000000000, Took: 7, Args: []Arg{
				{Name: "addr", Kind: Hex}, {Name: "length", Kind: Unsigned, Number: 4096}, {Name: "prot", Kind: Hex, Number: 1}, {Name: "fd", Number: 3},
			}},
			[]string{"99993|1|2|sh|EN|mmap|fd=3 addr=0 len=4096", "100000|1|2|sh|EX|mmap|ret=139637976727552 latency=7"},
		},
		"a page fault": {
			Record{Call: "fault", Group: "memory", HostPID: 1, HostTID: 1, Comm: []byte("sh"), Took: -1, Args: []Arg{{Name: "address", Kind: Hex, Number: 4096}, {Name: "ip", Kind: Hex, Number: 8}}},
			[]string{"100000|1|1|sh|EN|page_fault_user|addr=4096", "100000|1|1|sh|EX|handle_mm_fault|"},
		},
		"a measured fault": {
			Record{Call: "fault", Group: "memory", HostPID: 1, HostTID: 1, Comm: []byte("sh"), Took: 700, Args: []Arg{{Name: "address", Kind: Hex, Number: 4096}}},
			[]string{"100000|1|1|sh|EN|page_fault_user|addr=4096", "100700|1|1|sh|EX|handle_mm_fault|latency=700"},
		},
		"no call":  {Record{Call: "exit", HasRet: true}, nil},
		"a signal": {Record{Call: "signal", Group: "signal", Args: []Arg{{Name: "number", Number: 9}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			var lines []FlapLine
			for line := range strings.Lines(string(AppendFlap(nil, &tc.record, 100*time.Microsecond))) {
				line = strings.TrimSuffix(line, "\n")
				l, err := ParseFlap(line)
				if err != nil {
					t.Fatalf("FLAP's readers do not know %q: %v", line, err)
				}
				lines = append(lines, l)
				got = append(got, strings.Join(flapLine.FindStringSubmatch(line)[1:], "|"))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if len(lines) == 2 && (!lines[1].Ends(&lines[0]) || lines[0].Ends(&lines[1])) {
				t.Errorf("%+v is not the end of %+v", lines[1], lines[0])
			}
		})
	}
}

func TestParseFlap(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		want FlapLine
		bad  bool
	}{
		"an enter": {
			line: "5 {pid=1 tid=2 proc=my app}{EN mmap}{fd=3 addr=0 len=10}",
			want: FlapLine{Boot: 5, PID: 1, TID: 2, Proc: "my app", Enter: true, Call: "mmap", Args: map[string]string{"fd": "3", "addr": "0", "len": "10"}},
		},
		"FLAP's own":       {line: "5 {pid=1 tid=4294967295 proc=a}{EX close}", want: FlapLine{Boot: 5, PID: 1, TID: 1<<32 - 1, Proc: "a", Call: "close", Args: map[string]string{}}},
		"its first line":   {line: "2026-11-21 19:07:43 START tracing events", bad: true},
		"no key":           {line: "5 {pid=1 tid=2 proc=a}{EN read}{3}", bad: true},
		"a time too large": {line: "99999999999999999999 {pid=1 tid=2 proc=a}{EN read}{}", bad: true},
		"a pid too large":  {line: "5 {pid=99999999999 tid=2 proc=a}{EN read}{}", bad: true},
		"nothing":          {bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseFlap(tc.line)
			if tc.bad != (err != nil) {
				t.Fatalf("error %v, want one: %v", err, tc.bad)
			}
			if diff := cmp.Diff(tc.want, got); !tc.bad && diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseFlap(f *testing.F) {
	f.Add("5 {pid=1 tid=2 proc=a}{EN mmap}{fd=3 addr=0 len=10}")
	f.Fuzz(func(t *testing.T, line string) {
		if l, err := ParseFlap(line); err == nil && (l.Proc == "" || l.Call == "" || l.Args == nil || l.Boot < 0) {
			t.Errorf("%q is %+v", line, l)
		}
	})
}

func BenchmarkNDJSON(b *testing.B) {
	var line []byte
	var e Encoder
	for b.Loop() {
		line = e.Append(line[:0], &opened)
	}
}
