package htmlreport

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sonde-operator/sonde/internal/cli/live"
)

// none stands for a value that is unknown or does not exist.
const none = "–"

// number writes a count with commas.
func number[T ~int | ~int64 | ~uint64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural writes a count and a noun.
func plural[T ~int | ~int64 | ~uint64](n T, one, many string) string {
	if n == 1 {
		return number(n) + " " + one
	}
	return number(n) + " " + many
}

// span writes a duration with three digits.
func span(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d)
	case d < time.Millisecond-500*time.Nanosecond:
		return digits(float64(d)/1e3) + " µs"
	case d < time.Second-500*time.Microsecond:
		return digits(float64(d)/1e6) + " ms"
	case d < 2*time.Minute:
		return digits(d.Seconds()) + " s"
	}
	return d.Round(time.Second).String()
}

func digits(v float64) string {
	switch {
	case v < 9.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 99.95:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// bound writes the bound of a bar: shorter than span.
func bound(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d >= unit.size {
			return strconv.FormatFloat(float64(d)/float64(unit.size), 'g', 3, 64) + " " + unit.name
		}
	}
	return strconv.FormatInt(int64(d), 10) + " ns"
}

func percent(part, all uint64) string {
	if all == 0 {
		return none
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(all))
}

// moment writes a time in UTC.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") + " UTC" }

func textCell(s string) Cell { return Cell{Text: s} }

func countCell[T ~int | ~int64 | ~uint64](n T) Cell {
	return Cell{Text: number(n), Sort: float64(n)}
}

// alarmCell is a count that is bad unless it is zero.
func alarmCell[T ~int | ~int64 | ~uint64](n T, level Level) Cell {
	c := countCell(n)
	if n > 0 {
		c.Level = level
	}
	return c
}

func bytesCell(n int64) Cell { return Cell{Text: live.Bytes(n), Sort: float64(n)} }

// spanCell is a duration; zero means that it is unknown.
func spanCell(d time.Duration) Cell {
	if d == 0 {
		return Cell{Text: none, Sort: -1}
	}
	return Cell{Text: span(d), Sort: float64(d)}
}

// withBar adds a bar to the cell, for its share of most.
func withBar(c Cell, most float64) Cell {
	if most > 0 {
		c.Bar = max(0, c.Sort/most)
	}
	return c
}
