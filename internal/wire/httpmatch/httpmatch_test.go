package httpmatch

import (
	"strings"
	"testing"
)

// TestServerName checks which conditions on a server name are taken, and that they hold for TLS only.
func TestServerName(t *testing.T) {
	name, upper, path := "shop.example", "Shop.example", "/"
	for text, m := range map[string]*Match{
		"stands alone":              {ServerName: &Text{Exact: &name}, Path: &Text{Exact: &path}},
		"in lower case":             {ServerName: &Text{Prefix: &upper}},
		"exactly one of exact":      {ServerName: &Text{}},
		"serverName: write exactly": {ServerName: &Text{Exact: &name, Prefix: &name}},
	} {
		if _, err := m.Compile(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q", err, text)
		}
	}
	m, err := (&Match{ServerName: &Text{Prefix: &name}}).Compile()
	if err != nil {
		t.Fatal(err)
	}
	if !m.TLS() || !m.MatchesServerName("shop.example.org") || !m.MatchesServerName("SHOP.example") || m.MatchesServerName("x.shop.example") || m.MatchesServerName("") {
		t.Error("the prefix is not compared with the name as it is in lower case")
	}
	if m.Matches(&Request{Method: "GET", Path: "/"}) {
		t.Error("a request of HTTP matches")
	}
	plain, err := (&Match{Path: &Text{Prefix: new("")}}).Compile()
	if err != nil || plain.TLS() || plain.MatchesServerName(name) {
		t.Errorf("a condition of HTTP matches a server name, %v", err)
	}
}

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
