package live

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// screen simulates a terminal that wraps lines, moves the cursor up and erases.
type screen struct {
	width    int
	rows     [][]rune
	row, col int
	writes   int
}

func (s *screen) Write(b []byte) (int, error) {
	s.writes++
	for rest := b; len(rest) > 0; {
		if sequence, n := escape(rest); n > 0 {
			s.control(sequence)
			rest = rest[n:]
			continue
		}
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		s.put(r)
	}
	return len(b), nil
}

// escape returns a control sequence without its introducer, and its length.
func escape(b []byte) (string, int) {
	if !strings.HasPrefix(string(b), "\x1b[") {
		return "", 0
	}
	for i := 2; i < len(b); i++ {
		if b[i] >= 0x40 {
			return string(b[2 : i+1]), i + 1
		}
	}
	return "", 0
}

func (s *screen) control(sequence string) {
	switch final := sequence[len(sequence)-1]; final {
	case 'A':
		n, err := strconv.Atoi(sequence[:len(sequence)-1])
		if err != nil {
			panic(err)
		}
		s.row = max(0, s.row-n)
	case 'K':
		s.line()
		s.rows[s.row] = s.rows[s.row][:min(s.col, len(s.rows[s.row]))]
	case 'J':
		s.control("K")
		s.rows = s.rows[:s.row+1]
	default:
		panic("unknown sequence " + sequence)
	}
}

func (s *screen) line() {
	for len(s.rows) <= s.row {
		s.rows = append(s.rows, nil)
	}
}

func (s *screen) put(r rune) {
	switch r {
	case '\r':
		s.col = 0
	case '\n':
		s.row, s.col = s.row+1, 0
		s.line()
	default:
		if s.col == s.width {
			s.row, s.col = s.row+1, 0
		}
		s.line()
		for len(s.rows[s.row]) <= s.col {
			s.rows[s.row] = append(s.rows[s.row], ' ')
		}
		s.rows[s.row][s.col] = r
		s.col++
	}
}

func (s *screen) resize(width int) {
	var rows [][]rune
	for i, r := range s.rows {
		if i == s.row {
			s.row = len(rows)
		}
		for len(r) > width {
			rows = append(rows, r[:width:width])
			r = r[width:]
		}
		rows = append(rows, r)
	}
	s.rows, s.width = rows, width
}

func (s *screen) text() string {
	var b strings.Builder
	for _, r := range s.rows {
		b.WriteString(strings.TrimRight(string(r), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
