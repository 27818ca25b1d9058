package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUID: each text comes back, and only UIDs in the API server's form are kept as bytes.
func TestUID(t *testing.T) {
	for title, tc := range map[string]struct {
		text  string
		bytes bool
	}{
		"none":                  {"", false},
		"of the API server":     {"0b5d9a3e-7c1f-4e2a-9d64-51f0c8a7b3e2", true},
		"capitals":              {"0B5D9A3E-7c1f-4e2a-9d64-51f0c8a7b3e2", false},
		"dashes elsewhere":      {"0b5d9a3e7-c1f-4e2a-9d64-51f0c8a7b3e2", false},
		"without dashes":        {"0b5d9a3e7c1f4e2a9d6451f0c8a7b3e2", false},
		"one character more":    {"0b5d9a3e-7c1f-4e2a-9d64-51f0c8a7b3e2f", false},
		"one character less":    {"0b5d9a3e-7c1f-4e2a-9d64-51f0c8a7b3e", false},
		"no hexadecimal digits": {"0b5d9a3e-7c1f-4e2a-9d64-51f0c8a7b3ex", false},
		"zero":                  {"00000000-0000-0000-0000-000000000000", false},
		"a mirror Pod's":        {"5e3f0a7b0c5c4bd1a7b0f9d0e1c2b3a4", false},
	} {
		t.Run(title, func(t *testing.T) {
			u := uidOf(tc.text)
			if got := u.String(); got != tc.text {
				t.Errorf("got %q, want %q", got, tc.text)
			}
			if got := u.other == (name{}); tc.text != "" && got != tc.bytes {
				t.Errorf("kept as bytes: %t, want %t", got, tc.bytes)
			}
		})
	}
}

// TestPairs: a map with any characters comes back; equal maps give equal texts.
func TestPairs(t *testing.T) {
	for title, tc := range map[string]struct {
		in      map[string]string
		without []string
		more    []pair
		want    map[string]string
	}{
		"nothing":                   {},
		"any characters":            {in: map[string]string{"a": "b=c,d\x00e", "f": "\xff\xfe", "g": ""}, want: map[string]string{"a": "b=c,d\x00e", "f": "\xff\xfe", "g": ""}},
		"one kept elsewhere":        {in: map[string]string{"a": "1", "b": "2"}, without: []string{"b"}, more: []pair{{"b", "2"}}, want: map[string]string{"a": "1", "b": "2"}},
		"the only one is elsewhere": {in: map[string]string{"b": "2"}, without: []string{"b"}, more: []pair{{"b", "2"}}, want: map[string]string{"b": "2"}},
		"one without a value":       {in: map[string]string{"b": ""}, without: []string{"b"}, more: []pair{{"b", ""}}, want: map[string]string{"b": ""}},
	} {
		t.Run(title, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, pairsOf(tc.in, tc.without...).expand(tc.more...)); diff != "" {
				t.Errorf("map (-want +got):\n%s", diff)
			}
		})
	}
}
