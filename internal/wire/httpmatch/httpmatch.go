// Package httpmatch decides which HTTP requests and TLS connections an intercept takes. The webhook compiles a match to check it, and
// the carrier compiles it again to use it.
package httpmatch

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"
)

// Require says how many conditions of a match must hold.
type Require string

// Values of Require. The empty value means All.
const (
	All Require = "All"
	Any Require = "Any"
)

// Text is a condition on one value: exactly one of the fields is set. A regular expression has RE2's syntax and must match the
// whole value.
type Text struct {
	Exact  *string `json:"exact,omitempty"`
	Prefix *string `json:"prefix,omitempty"`
	Regex  *string `json:"regex,omitempty"`
}

// Header is a condition on a header field. If the field is repeated, one of its values must fulfil the condition.
type Header struct {
	// Name of the field; upper and lower case do not matter.
	Name string `json:"name"`
	Text
}

// Match selects requests of HTTP/1, or connections of TLS.
type Match struct {
	Require Require `json:"require,omitempty"`
	Method  *Text   `json:"method,omitempty"`
	// Path of the request as it was sent, without decoding, and without the query.
	Path    *Text    `json:"path,omitempty"`
	Headers []Header `json:"headers,omitempty"`
	// ServerName of a TLS connection (SNI), in lower case. The other conditions cannot be seen in TLS, so it stands alone.
	ServerName *Text `json:"serverName,omitempty"`
}

// Request is what a match looks at.
type Request struct {
	Method, Path string
	// Fields of the head in their order.
	Fields []Field
}

// Field is one line of a head.
type Field struct{ Name, Value string }

// Matcher is a compiled Match.
type Matcher struct {
	any        bool
	conditions []func(*Request) bool
	// serverName is the condition of a match for TLS, which has no others.
	serverName func(string) bool
}

// Compile checks the match. The error names the condition that is wrong.
func (m *Match) Compile() (*Matcher, error) {
	c := &Matcher{any: m.Require == Any}
	if m.Require != "" && m.Require != All && m.Require != Any {
		return nil, fmt.Errorf("require: %q is neither All nor Any", m.Require)
	}
	left := maxSteps
	if m.ServerName != nil {
		return m.compileServerName(&left)
	}
	for _, of := range []struct {
		name  string
		text  *Text
		value func(*Request) string
	}{
		{"method", m.Method, func(r *Request) string { return r.Method }},
		{"path", m.Path, func(r *Request) string { return r.Path }},
	} {
		if of.text == nil {
			continue
		}
		holds, err := of.text.compile(&left)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.name, err)
		}
		c.conditions = append(c.conditions, func(r *Request) bool { return holds(of.value(r)) })
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		if !httpguts.ValidHeaderFieldName(h.Name) {
			return nil, fmt.Errorf("headers[%d]: %q is no name of a header field: use letters, digits and hyphens", i, h.Name)
		}
		holds, err := h.compile(&left)
		if err != nil {
			return nil, fmt.Errorf("headers[%d]: %w", i, err)
		}
		c.conditions = append(c.conditions, func(r *Request) bool { return r.has(h.Name, holds) })
	}
	if len(c.conditions) == 0 {
		return nil, errors.New("no condition: write method, path, headers or serverName, or leave match out to take all requests")
	}
	return c, nil
}

func (m *Match) compileServerName(left *int) (*Matcher, error) {
	if m.Method != nil || m.Path != nil || len(m.Headers) > 0 {
		return nil, errors.New("serverName: it stands alone, because TLS hides method, path and headers")
	}
	for _, s := range []*string{m.ServerName.Exact, m.ServerName.Prefix} {
		if s != nil && *s != strings.ToLower(*s) {
			return nil, fmt.Errorf("serverName: write %q in lower case", *s)
		}
	}
	holds, err := m.ServerName.compile(left)
	if err != nil {
		return nil, fmt.Errorf("serverName: %w", err)
	}
	return &Matcher{serverName: holds}, nil
}

// compile takes the steps of a regular expression from those that are left.
func (t *Text) compile(left *int) (func(string) bool, error) {
	set := 0
	for _, p := range []*string{t.Exact, t.Prefix, t.Regex} {
		if p != nil {
			set++
		}
	}
	if set != 1 {
		return nil, errors.New("write exactly one of exact, prefix and regex")
	}
	for _, p := range []*string{t.Exact, t.Prefix} {
		// A tab may stand in the value of a header.
		if p != nil && strings.ContainsFunc(strings.ReplaceAll(*p, "\t", ""), unicode.IsControl) {
			return nil, fmt.Errorf("%q has a control character, which no request has there: remove it", *p)
		}
	}
	switch {
	case t.Exact != nil:
		want := *t.Exact
		return func(s string) bool { return s == want }, nil
	case t.Prefix != nil:
		want := *t.Prefix
		return func(s string) bool { return strings.HasPrefix(s, want) }, nil
	}
	if n := utf8.RuneCountInString(*t.Regex); n > maxRegex {
		return nil, fmt.Errorf("regex: it has %d characters, and may have %d: write it shorter", n, maxRegex)
	}
	parsed, err := syntax.Parse(*t.Regex, syntax.Perl) // alone: with brackets around it, "a)|(b" would be valid
	if err != nil {
		return nil, fmt.Errorf("regex: %w: write it in RE2's syntax, which has no look-ahead and no back reference", err)
	}
	n := size(parsed)
	if n > *left {
		return nil, fmt.Errorf("regex: it is too large: with its repetitions written out it has %d steps, and %d are left of the %d for all of a match: "+
			"repeat less, and write smaller classes of characters", n, *left, maxSteps)
	}
	*left -= n
	expression, err := regexp.Compile(`^(?:` + *t.Regex + `)$`)
	if err != nil { // a \Q without \E quotes the bracket. The written-out form is long: \PL has 7 KiB, and the expression keeps it
		expression, err = regexp.Compile(`^(?:` + parsed.String() + `)$`)
	}
	if err != nil {
		return nil, fmt.Errorf("regex: %w", err)
	}
	return expression.MatchString, nil
}

const (
	// maxRegex bounds the characters of a regular expression, as the schema does. Parsing one, such as 341 times \PL, takes up to 5 MiB.
	maxRegex = 1 << 10
	// maxSteps bounds the regular expressions of a match together. Package regexp takes ones of 1 KiB that take 2 s and 200 MiB to
	// compile. What is compiled has about 110 bytes for each step.
	maxSteps = 2000
	// rangesPerStep take as much memory as a step: the expression has a copy of a class for each of its repetitions.
	rangesPerStep = 8
)

// size is how many steps an expression has, up to a million.
func size(e *syntax.Regexp) int {
	n := 1
	switch e.Op { //nolint:exhaustive // the others are one step
	case syntax.OpLiteral:
		n = len(e.Rune)
	case syntax.OpCharClass:
		n += len(e.Rune) / (2 * rangesPerStep)
	}
	for _, part := range e.Sub {
		n += size(part)
	}
	if e.Op == syntax.OpRepeat {
		n *= max(e.Min, e.Max, 1)
	}
	return min(n, 1_000_000)
}

func (r *Request) has(name string, holds func(string) bool) bool {
	for _, f := range r.Fields {
		if strings.EqualFold(f.Name, name) && holds(f.Value) {
			return true
		}
	}
	return false
}

// TLS reports whether the match selects connections of TLS.
func (c *Matcher) TLS() bool { return c.serverName != nil }

// MatchesServerName reports whether the match selects TLS connections that ask for this name, which is empty if they ask for none.
func (c *Matcher) MatchesServerName(name string) bool {
	return c.serverName != nil && name != "" && c.serverName(strings.ToLower(name))
}

// Matches reports whether the request is one of those that the match selects.
func (c *Matcher) Matches(r *Request) bool {
	if c.serverName != nil {
		return false
	}
	for _, holds := range c.conditions {
		if holds(r) == c.any {
			return c.any
		}
	}
	return !c.any
}
