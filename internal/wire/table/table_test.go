package table

import "testing"

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
