package httpmatch

import (
	"runtime"
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
		"a look-ahead":        {regex: "/(?!a)", want: "write it in RE2's syntax, which has no look-ahead"},
		"an open quote":       {regex: `/\Q.`, matches: []string{"/."}, not: []string{"/x"}},
		"huge when compiled":  {regex: "(?:" + strings.Repeat(".?", 500) + "){1000}", want: "of the 2000 for all of a match: repeat less"},
		"huge, and unbounded": {regex: "(?:" + strings.Repeat("ab*", 330) + "){1000,}", want: "of the 2000 for all of a match: repeat less"},
		"letters":             {regex: `\p{L}{1,10}`, matches: []string{"ä"}, not: []string{"1"}},
		"large classes":       {regex: `\PL{990}`, want: "write smaller classes of characters"},
		"too long":            {regex: strings.Repeat("a", 1025), want: "it has 1025 characters, and may have 1024"},
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

// conditions returns a match of a path, a method and 16 headers, each with this regular expression.
func conditions(regex string) *Match {
	m := &Match{Method: &Text{Regex: &regex}, Path: &Text{Regex: &regex}}
	for range 16 {
		m.Headers = append(m.Headers, Header{Name: "a", Text: Text{Regex: &regex}})
	}
	return m
}

// TestRegexesTogether checks that the conditions of a match share one bound.
func TestRegexesTogether(t *testing.T) {
	if _, err := conditions("[a-z]{1,50}").Compile(); err != nil {
		t.Error(err)
	}
	_, err := conditions("a{300}").Compile()
	if want := "headers[1]: regex: it is too large: with its repetitions written out it has 600 steps, and 200 are left of the 2000 for all of a match"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// TestMatchesTakeBoundedMemory checks the expressions that take the most memory to parse, and to keep.
func TestMatchesTakeBoundedMemory(t *testing.T) {
	for name, m := range map[string]*Match{
		"long repetitions of a class": conditions(`\PL{990}`),
		"short ones":                  conditions(`\PL`),
		"many classes":                conditions(strings.Repeat(`\PL`, 341)),
		"too many classes":            conditions(strings.Repeat(`\PL`, 1000)),
		"as many as are taken":        {Path: &Text{Regex: new(strings.Repeat(`\PL`, 24))}},
		"a repeated one":              {Path: &Text{Regex: new(`\PL{23}`)}},
		"a repeated letter":           {Path: &Text{Regex: new(`a{990}`)}},
		"a folded class":              {Path: &Text{Regex: new(`(?i)[\x{0}-\x{10ffff}]{990}`)}},
		"captures":                    {Path: &Text{Regex: new(strings.Repeat("()", 500))}},
	} {
		var before, compiled, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		matcher, err := m.Compile()
		runtime.ReadMemStats(&compiled)
		runtime.GC()
		runtime.ReadMemStats(&after)
		kept := max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc
		t.Logf("%s: takes %d KiB, keeps %d KiB, error %v", name, (compiled.TotalAlloc-before.TotalAlloc)>>10, kept>>10, err)
		if taken := compiled.TotalAlloc - before.TotalAlloc; taken > 12<<20 || kept > 512<<10 {
			t.Errorf("%s takes %d KiB, and keeps %d KiB", name, taken>>10, kept>>10)
		}
		runtime.KeepAlive(matcher)
	}
}

func TestControlCharactersAreRefused(t *testing.T) {
	lines, tab, del := "a\nb", "a\tb", "/\x7f"
	for name, c := range map[string]struct {
		match Match
		valid bool
	}{
		"a line break in a header": {Match{Headers: []Header{{Name: "X-User", Text: Text{Exact: &lines}}}}, false},
		"a tab in a header":        {Match{Headers: []Header{{Name: "X-User", Text: Text{Exact: &tab}}}}, true},
		"a delete in a path":       {Match{Path: &Text{Prefix: &del}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.match.Compile(); (err == nil) != c.valid {
				t.Errorf("error %v", err)
			}
		})
	}
}
