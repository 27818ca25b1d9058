package table

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

func TestText(t *testing.T) {
	tests := map[string]struct {
		columns string
		rows    [][]string
		want    string
	}{
		"sides":                 {"lr", [][]string{{"POD", "BYTES"}, {"web-0", "1"}}, "POD    BYTES\nweb-0      1\n"},
		"no blanks at the end":  {"ll", [][]string{{"A", "LONG"}, {"b", "c"}, {"d", ""}}, "A  LONG\nb  c\nd\n"},
		"an empty column":       {"lll", [][]string{{"A", "", "C"}, {"a", "", "c"}}, "A    C\na    c\n"},
		"characters, not bytes": {"rl", [][]string{{"µs", "X"}, {"1", "y"}}, "µs  X\n 1  y\n"},
		"control characters":    {"l", [][]string{{"a\x1b[31m\n\u202eb"}}, "a [31m  b\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Text(tc.columns, tc.rows); got != tc.want {
				t.Errorf("Text() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTruncate(t *testing.T) {
	tests := map[string]struct {
		text  string
		width int
		want  string
	}{
		"fits":           {"näme", 4, "näme"},
		"too long":       {"names", 4, "nam…"},
		"one character":  {"names", 1, "…"},
		"without limits": {"names", 0, "names"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Truncate(tc.text, tc.width); got != tc.want {
				t.Errorf("Truncate() = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPad(t *testing.T) {
	if got := Pad("long", 2, Right); got != "long" {
		t.Errorf("a cell longer than its column became %q", got)
	}
}

func TestAppendPrintableJSON(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"printable":            {`{"a":"ä€😀\u001b\\"}` + "\n", `{"a":"ä€😀\u001b\\"}` + "\n"},
		"controls":             {"{\"a\":\"\u009b2J\x7f\u0080\\\\\u009f\"}", `{"a":"\u009b2J\u007f\u0080\\\u009f"}`},
		"direction":            {"{\"\u202ea\":\"\u2066\u200f\"}", `{"\u202ea":"\u2066\u200f"}`},
		"beyond 16 bits":       {"{\"a\":\"\U000e0001\"}", `{"a":"\udb40\udc01"}`},
		"not UTF-8":            {"{\"a\":\"\x9b2J\ufffd\"}", `{"a":"\ufffd2J\ufffd"}`},
		"blanks between words": {"{\t\"a\"\r:\n1}", "{ \"a\" :\n1}"},
	} {
		t.Run(name, func(t *testing.T) {
			got := AppendPrintableJSON(nil, []byte(tc.text))
			if string(got) != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			checkPrintableJSON(t, []byte(tc.text), got)
		})
	}
}

// checkPrintableJSON checks that a JSON text means the same when it is printable.
func checkPrintableJSON(t *testing.T, text, printable []byte) {
	t.Helper()
	var want, got any
	if err := json.Unmarshal(text, &want); err != nil {
		return // for a text that is not JSON any printable one will do
	}
	if err := json.Unmarshal(printable, &got); err != nil {
		t.Fatalf("%q from %q: %v", printable, text, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q from %q (-want +got):\n%s", printable, text, diff)
	}
}

func FuzzAppendPrintableJSON(f *testing.F) {
	f.Add([]byte("{\"\u009b\":[\"\x9b\\\\\",\t1]}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		got := AppendPrintableJSON(nil, text)
		for _, r := range string(got) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("%q is printed", r)
			}
		}
		checkPrintableJSON(t, text, got)
	})
}
