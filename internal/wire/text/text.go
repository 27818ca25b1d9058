// Package text bounds untrusted texts before they go into messages, events, accounts and files. Lengths are in bytes of UTF-8.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "..."

// Truncate returns the beginning of s that has at most maxBytes bytes and ends between two characters.
func Truncate(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	for maxBytes > 0 && !utf8.RuneStart(s[maxBytes]) {
		maxBytes--
	}
	return s[:maxBytes]
}

// Ellipsis returns s where it has at most maxBytes bytes, and otherwise its beginning and "...", together at most
// maxBytes bytes. maxBytes is 3 or more.
func Ellipsis(s string, maxBytes int) string {
	if len(s) <= maxBytes {
		return s
	}
	return Truncate(s, maxBytes-len(ellipsis)) + ellipsis
}

// OneLine returns s as one line of printable characters of at most maxBytes bytes. Every other character becomes a
// space, and each run of invalid bytes a question mark. A longer text ends in "...".
func OneLine(s string, maxBytes int) string {
	s = Truncate(s, 4*maxBytes) // no character takes more than four bytes, so the rest cannot be shown
	s = strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return ' '
	}, strings.ToValidUTF8(s, "?"))
	return strings.TrimSpace(Ellipsis(s, maxBytes))
}
