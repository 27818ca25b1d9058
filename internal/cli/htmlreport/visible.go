package htmlreport

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/table"
)

// maxShown is the most characters of a text in a page.
const maxShown = 300

// visible returns a text in which each character that does not print is an escape, as Go writes them. Such characters could hide
// a part of the text, or reverse its direction.
func visible(s string) string {
	plain := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return table.Truncate(s, maxShown)
	}
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() < 4*maxShown; {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case plain(r):
			b.WriteRune(r)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 1<<16:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return table.Truncate(b.String(), maxShown)
}
