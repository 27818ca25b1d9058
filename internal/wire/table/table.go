// Package table prints rows of cells as aligned columns of text. The plugin prints its tables with it, and so does the
// report of "agent doctor".
package table

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Gap separates two columns.
const Gap = "  "

// Align says on which side of its column a cell is.
type Align byte

// Sides of a column.
const (
	Left  Align = 'l'
	Right Align = 'r'
)

// Text returns one line for each row. columns has one Align for each column, like "llr"; columns that it does not name
// are aligned right. All rows have the same number of cells. Cells are made Printable, and lines have no blanks at
// their end.
func Text(columns string, rows [][]string) string {
	var b strings.Builder
	widths := Widths(rows)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(Gap)
			}
			align := Right
			if i < len(columns) {
				align = Align(columns[i])
			}
			line.WriteString(Pad(cell, widths[i], align))
		}
		b.WriteString(strings.TrimRight(Printable(line.String()), " ") + "\n")
	}
	return b.String()
}

// Widths returns the width of each column in characters: the length of its longest cell.
func Widths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

// Pad fills a cell with blanks up to the width in characters. A longer cell stays as it is.
func Pad(cell string, width int, align Align) string {
	blanks := strings.Repeat(" ", max(0, width-utf8.RuneCountInString(cell)))
	if align == Right {
		return blanks + cell
	}
	return cell + blanks
}

// Ellipsis replaces the text that Truncate removes.
const Ellipsis = "…"

// Truncate shortens s to width characters, the last being Ellipsis. Zero or less means no limit.
func Truncate(s string, width int) string {
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return s
	}
	return string([]rune(s)[:width-1]) + Ellipsis
}

// Printable replaces every character that is not printable by a blank. Texts come from the cluster and from files;
// a control character in them could move the cursor or reverse the direction of the text.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// AppendPrintableJSON appends a JSON text in which every character that is not printable is escaped, for a terminal. It means the
// same: such characters are valid only in strings, or are blanks.
func AppendPrintableJSON(b, text []byte) []byte {
	escape := func(b []byte, r rune) []byte { return fmt.Appendf(b, `\u%04x`, r) }
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError:
			b = escape(b, r) // also for a byte that is not UTF-8
		case r == '\n' || unicode.IsPrint(r):
			b = append(b, text[:n]...)
		case r < ' ':
			b = append(b, ' ')
		case r > math.MaxUint16:
			high, low := utf16.EncodeRune(r)
			b = escape(escape(b, high), low)
		default:
			b = escape(b, r)
		}
		text = text[n:]
	}
	return b
}
