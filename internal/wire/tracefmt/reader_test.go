package tracefmt

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A record whose values have only one spelling is read as it was written.
func TestRoundTrip(t *testing.T) {
	at := time.Date(2026, 11, 21, 19, 7, 43, 1, time.UTC)
	for name, record := range map[string]Record{
		"a call": opened,
		"a start": {
			Time: at, Call: "exec", Group: "process", PID: 1, Took: -1, Path: []byte("/bin/sh"),
			Args: []Arg{{Name: "argv", Kind: List, Text: []byte("sh\x00\x00echo \"hi\"\x1b\x00")}},
		},
		"of a Pod":           {Pod: "web-1", PodUID: "u\"1", Time: at, Call: "read", Took: -1},
		"no arguments":       {Time: at, Call: "start", Args: []Arg{{Name: "argv", Kind: List}}, Took: -1},
		"a large number":     {Time: at, Call: "read", Took: 0, Args: []Arg{{Name: "count", Kind: Unsigned, Number: -1}, {Name: "buf", Kind: Hex, Number: -4096}}},
		"an empty path":      {Time: at, Call: "fstatat", Took: -1, Args: []Arg{{Name: "pathname", Kind: Text}}},
		"a hostile name":     {Time: at, Call: "read", Container: `x","path":"/etc/shadow`, Comm: []byte("\x1b[2J\"\\"), Took: -1},
		"a connection":       {Time: at, Call: "connection", Errno: "ECONNRESET", Took: -1, Args: []Arg{{Name: "open", Kind: Bool, Number: 1}, {Name: "tried", Kind: Bool}}},
		"an end by a signal": {Time: at, Call: "exit", HasRet: true, Took: -1, Args: []Arg{{Name: "signal", Kind: Text, Text: []byte("SIGKILL")}}},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := NewReader(bytes.NewReader(ndjson(&record))).Next()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&record, line.Record); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// A line in a file of several Pods is the same as in a single trace, except that it names its Pod.
func TestAppendOfPod(t *testing.T) {
	account, err := AppendAccount(nil, Account{Written: 1, Complete: true})
	if err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, line := range [][]byte{ndjson(&opened), account} {
		b = AppendWithPod(b, bytes.TrimSpace(line), "web-1", "")
		b = AppendWithPod(b, bytes.TrimSpace(line), "web-1", "u1")
	}
	if want := `{"pod":"web-1","time":"`; !strings.HasPrefix(string(b), want) {
		t.Errorf("%s does not begin with %s", b, want)
	}
	record, again := opened, opened
	record.Pod, again.Pod, again.PodUID = "web-1", "web-1", "u1"
	r := NewReader(bytes.NewReader(b))
	for _, want := range []Line{
		{Record: &record},
		{Record: &again},
		{Account: &Account{Pod: "web-1", Written: 1, Lost: map[string]uint64{}, Complete: true}},
		{Account: &Account{Pod: "web-1", PodUID: "u1", Written: 1, Lost: map[string]uint64{}, Complete: true}},
	} {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		got.Raw = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("line (-want +got):\n%s", diff)
		}
	}
}

func TestHeaderAndAccount(t *testing.T) {
	header := Header{
		Version: Version, Namespace: "shop", Target: "Deployment/web", JobID: "qwer", Pod: "web-1", PodUID: "u1", Node: "n1", Arch: "arm64",
		Groups: []string{"process", "file", "memory"}, Containers: []string{"web"}, Command: "nginx: \"x\"", Children: true,
		Durations: true, Missing: []string{"fault"},
	}
	account := Account{Written: 3, Lost: map[string]uint64{"ring": 2, "rare": 1}, LostCalls: map[string]uint64{"read": 2, "exec": 1}, Reason: "Killed", Message: "the probe was killed"}
	b, err := AppendHeader(nil, header)
	if err == nil {
		b, err = AppendAccount(b, account)
	}
	if err == nil {
		b, err = AppendAccount(b, Account{Complete: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"sonde":"trace","version":1,"namespace":"shop",`; !strings.HasPrefix(string(b), want) {
		t.Errorf("%s does not begin with %s", b, want)
	}
	if want := `{"sonde":"account","written":0,"lost":{},"complete":true}` + "\n"; !strings.HasSuffix(string(b), want) {
		t.Errorf("%s does not end with %s", b, want)
	}
	got := readAll(t, string(b))
	want := []any{&header, &account, &Account{Lost: map[string]uint64{}, Complete: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// readAll returns the headers, records and accounts, and the texts of errors.
func readAll(t *testing.T, text string) []any {
	t.Helper()
	var all []any
	for r := NewReader(iotestOneByte{strings.NewReader(text)}); ; {
		line, err := r.Next()
		var bad *LineError
		switch {
		case errors.Is(err, io.EOF):
			return all
		case errors.As(err, &bad):
			all = append(all, err.Error())
			continue
		case err != nil:
			return append(all, "at last: "+err.Error())
		case line.Header != nil:
			all = append(all, line.Header)
		case line.Account != nil:
			all = append(all, line.Account)
		default:
			all = append(all, line.Record.Call)
		}
		if !bytes.HasPrefix(line.Raw, []byte("{")) || !bytes.HasSuffix(line.Raw, []byte("}")) {
			t.Errorf("raw line %q", line.Raw)
		}
	}
}

// iotestOneByte returns one byte at a time, like a very slow network.
type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(1, len(b))]) }

func TestReader(t *testing.T) {
	const event = `{"time":"1970-01-01T00:00:01Z","call":"read"}`
	other := func(key, value string) string { return strings.Replace(event, "{", "{\""+key+"\":"+value+",", 1) }
	for name, tc := range map[string]struct {
		text string
		want []any
	}{
		"nothing":                     {"", nil},
		"blank lines":                 {"\n \n" + event + "\r\n\n", []any{"read"}},
		"no end of the line":          {event, []any{"read"}},
		"cut off":                     {event + "\n" + event[:20], []any{"read", "line 2: the line is truncated: its writer was killed or is still running"}},
		"damaged in the middle":       {event + "\n" + event[5:] + "\n" + event, []any{"read", "line 2: the line is not a JSON object", "read"}},
		"not a trace":                 {"\x0a\x0d\x0d\x0a\x1c\x00", []any{"at last: " + ErrNotTrace.Error()}},
		"a number":                    {"17\n", []any{"at last: " + ErrNotTrace.Error()}},
		"other JSON":                  {`{"kind":"Pod"}`, []any{"line 1: the line is not an event: it has no time and call"}},
		"unknown keys":                {other("stack", `[{"a":"}]\""},null,1e5]`), []any{"read"}},
		"unknown kinds of lines":      {`{"sonde":"checkpoint","seen":7}` + "\n" + event, []any{"read"}},
		"a kind that is no text":      {event + "\n" + `{"sonde":{"a":1}}`, []any{"read", "line 2: not a string"}},
		"a newer format":              {`{"sonde":"trace","version":2}` + "\n" + event, []any{"at last: a newer Sonde wrote this trace: its format has version 2, and this program reads up to 1. Update kubectl-sonde"}},
		"no time":                     {`{"time":"yesterday","call":"read"}`, []any{`line 1: time: parsing time "yesterday" as "2006-01-02T15:04:05.999999999Z07:00": cannot parse "yesterday" as "2006"`}},
		"a call that is no name":      {`{"time":"1970-01-01T00:00:01Z","call":"re ad"}`, []any{"line 1: call: not a name of letters, digits and underscores with at most 64 characters"}},
		"an argument that is no name": {other("args", `{"\u001b":1}`), []any{"line 1: args: not a name of letters, digits and underscores with at most 64 characters"}},
		"arguments that are none":     {other("args", `7`), []any{"line 1: args: not an object"}},
		"a number too large":          {other("pid", `4294967296`), []any{`line 1: pid: strconv.ParseUint: parsing "4294967296": value out of range`}},
		"a text that is none":         {other("path", `null`), []any{"line 1: path: not a string"}},
		"a header that is none":       {`{"sonde":"trace","version":"x"}`, []any{"line 1: read the header of the trace: json: cannot unmarshal string into Go struct field Header.version of type int"}},
		"longer than the buffer":      {other("path", `"`+strings.Repeat("x", MaxLine/2)+`"`), []any{"read"}},
		"too long":                    {event + "\n" + other("path", `"`+strings.Repeat("x", MaxLine+1)+`"`) + "\n" + event, []any{"read", "line 2: the line is longer than 1048576 bytes", "read"}},
		"too long at the end":         {event + "\n" + strings.Repeat("x", MaxLine+1), []any{"read", "line 2: the line is longer than 1048576 bytes"}},
		"too long to be one":          {strings.Repeat("x", MaxLine+1), []any{"at last: " + ErrNotTrace.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, readAll(t, tc.text)); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReaderOfWhatBreaks(t *testing.T) {
	broken := errors.New("reset by peer")
	r := NewReader(io.MultiReader(strings.NewReader(`{"time":`), readError{broken}))
	if _, err := r.Next(); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

type readError struct{ err error }

func (r readError) Read([]byte) (int, error) { return 0, r.err }

func TestReady(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat(string(ndjson(&opened)), 2)))
	for i, want := range []bool{false, true, false} {
		if got := r.Ready(); got != want {
			t.Errorf("before line %d: ready %v, want %v", i, got, want)
		}
		if _, err := r.Next(); err != nil && i < 2 {
			t.Fatal(err)
		}
	}
}

// For any input, a line that is read as a record is written again as one line with the same content.
func FuzzReader(f *testing.F) {
	f.Add(ndjson(&opened))
	f.Add(AppendWithPod(nil, []byte(`{"time":"1970-01-01T00:00:01Z","call":"x"}`), "web\n1", "u1"))
	for _, s := range []string{
		`{"sonde":"trace","version":1}`, `{"sonde":"account","lost":{"a":1}}`, "{", `{"a":[{"b":"\""}]}`, "{\"time\":\"9999-12-31T23:59:59-05:00\",\"call\":\"x\"}",
		`{"time":"1970-01-01T00:00:01Z","call":"x","args":{"a":"0x0","b":"0x00","c":["\u0000"],"d":18446744073709551615,"e":1.5,"f":null},"comm":"` + "\xff" + `\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := NewReader(bytes.NewReader(b)); ; {
			line, err := r.Next()
			if _, bad := errors.AsType[*LineError](err); bad {
				continue
			}
			if err != nil {
				return
			}
			if line.Record == nil {
				continue
			}
			text := ndjson(line.Record)
			again, err := NewReader(bytes.NewReader(text)).Next()
			if err != nil {
				t.Fatalf("%v: %q of %q", err, text, line.Raw)
			}
			if diff := cmp.Diff(line.Record, again.Record); diff != "" {
				t.Errorf("%q (-first +second):\n%s", text, diff)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	usual := opened
	usual.Args = slices.Clone(opened.Args)
	usual.Args[1].Text, usual.Path = []byte("locale/locale.alias"), []byte("/usr/share/locale/locale.alias")
	line := bytes.TrimSpace(ndjson(&usual))
	b.Run("by hand", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		d := decoder{names: map[string]string{}}
		for b.Loop() {
			if _, err := d.decode(line, &Record{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		b.SetBytes(int64(len(line)))
		for b.Loop() {
			var r struct {
				Time                                 time.Time
				Call, Group, Container, Comm, Errno  string
				PID, HostPID, TID, HostTID, UID, Ret int64
				LatencyNs                            *int64
				Path                                 string
				Args                                 map[string]any
			}
			if err := json.Unmarshal(line, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
