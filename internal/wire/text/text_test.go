package text_test

import (
	"testing"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

func TestTruncate(t *testing.T) {
	for name, tc := range map[string]struct {
		text     string
		maxBytes int
		want     string
	}{
		"shorter":          {"ab", 3, "ab"},
		"as long":          {"abc", 3, "abc"},
		"longer":           {"abcd", 3, "abc"},
		"in a character":   {"aé", 2, "a"},
		"after it":         {"aéb", 3, "aé"},
		"first character":  {"€", 2, ""},
		"nothing":          {"abc", 0, ""},
		"no text":          {"", 3, ""},
		"no UTF-8 at all":  {"\x80\x80\x80\x80", 2, ""},
		"an invalid start": {"\xff\xff\xff", 2, "\xff\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text.Truncate(tc.text, tc.maxBytes); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestEllipsis(t *testing.T) {
	for in, want := range map[string]string{"abcdef": "abcdef", "abcdefg": "abc...", "abцdefg": "ab...", "": ""} {
		if got := text.Ellipsis(in, 6); got != want {
			t.Errorf("Ellipsis(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for name, tc := range map[string]struct {
		text     string
		maxBytes int
		want     string
	}{
		"plain":              {"tcp port 80", 20, "tcp port 80"},
		"as long":            {"abcdef", 6, "abcdef"},
		"longer":             {"abcdefg", 6, "abc..."},
		"in a character":     {"abцdefg", 6, "ab..."},
		"control characters": {"a\r\nb\x1b[0m\x00", 20, "a  b [0m"},
		"two lines":          {"two\nlines\x1b[2J", 10, "two lin..."},
		"invalid":            {"a\xffb", 20, "a?b"},
		"grows":              {"\xff\xff\u202e\xff", 6, "? ?"},
		"direction change":   {"a\u202eb", 20, "a b"},
		"wide":               {"ääääääää", 10, "äää..."},
		"no text":            {"", 10, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text.OneLine(tc.text, tc.maxBytes); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzOneLine(f *testing.F) {
	f.Add("two\nlines", 6)
	f.Fuzz(func(t *testing.T, s string, maxBytes int) {
		maxBytes = 3 + maxBytes&1023
		if got := text.OneLine(s, maxBytes); len(got) > maxBytes || !utf8.ValidString(got) {
			t.Errorf("OneLine(%q, %d) = %q", s, maxBytes, got)
		}
	})
}
