package httpmatch

import (
	"strings"
	"testing"
)

// TestRegex checks which regular expressions are taken, and that they match whole values.
func TestRegex(t *testing.T) {
	for name, tc := range map[string]struct {
		regex   string
		matches []string
		not     []string
		want    string // part of the error
	}{
		"a whole path":        {regex: "/v[12]/.*", matches: []string{"/v1/x"}, not: []string{"/v3/x", "/a/v1/x"}},
		"a long one":          {regex: strings.Repeat("a", 1024), matches: []string{strings.Repeat("a", 1024)}},
		"some repetitions":    {regex: "[a-z]{1,63}(/[a-z]{1,63}){0,8}", matches: []string{"a/b"}, not: []string{"a//b"}},
		"half a bracket":      {regex: "a)|(b", want: "regex: error parsing regexp: unexpected )"},
		"huge when compiled":  {regex: "(?:" + strings.Repeat(".?", 500) + "){1000}", want: "may have 2000: repeat less"},
		"huge, and unbounded": {regex: "(?:" + strings.Repeat("ab*", 330) + "){1000,}", want: "may have 2000: repeat less"},
		"repeated repeats":    {regex: "((a{30}){30})", want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := (&Match{Path: &Text{Regex: &tc.regex}}).Compile()
			if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			for _, path := range tc.matches {
				if !m.Matches(&Request{Path: path}) {
					t.Errorf("%q does not match", path)
				}
			}
			for _, path := range tc.not {
				if m.Matches(&Request{Path: path}) {
					t.Errorf("%q matches", path)
				}
			}
		})
	}
}
