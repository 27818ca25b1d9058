package traceview

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Colours of a terminal (ECMA-48, SGR).
const (
	dim     = "\x1b[2m"
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	blue    = "\x1b[34m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	alarm   = "\x1b[1;31m" // bold
	plain   = "\x1b[0m"
)

var groupColours = map[string]string{
	"process": magenta, "file": cyan, "io": blue, "memory": yellow, "network": green, "signal": red,
}

// Durations from which on a call is shown in yellow, and in bold red.
const (
	slow     = 10 * time.Millisecond
	verySlow = time.Second
)

// Live writes a line for each event: its time, the process and its name, the call, its duration and result, and last
// its description, as that has no fixed width.
type Live struct {
	// Colour writes escape sequences for a terminal.
	Colour bool
	// Pods shows the Pod of each event.
	Pods bool
	// Width, if not nil, returns the longest line in characters; zero is no limit. It is called before each line,
	// because the window may have been resized.
	Width func() int

	w      io.Writer
	widths [5]int
}

// NewLive returns a Live that writes to w, with one Write for each line.
func NewLive(w io.Writer) *Live {
	return &Live{w: w, widths: [5]int{8, 6, 10, 6, 6}}
}

// sides of the columns.
const sides = "lllrr"

// maxWidth of a column, so that one long name does not push the other columns out of the window.
const maxWidth = 48

// Show writes the line of an event.
func (l *Live) Show(from *Source, r *tracefmt.Record) error {
	process := processName(r)
	if l.Pods {
		process = quoted(from.Pod()) + "/" + process
	}
	cells := [5]string{process, string(r.Comm), r.Call, formatDuration(r.Took), result(r)}
	colours := colouring(r, cells[4])
	line := []coloured{{dim, clockTime(r.Time)}}
	for i, c := range cells {
		c = table.Truncate(table.Printable(c), maxWidth)
		l.widths[i] = max(l.widths[i], utf8.RuneCountInString(c))
		line = append(line, coloured{"", table.Gap}, coloured{colours[i], table.Pad(c, l.widths[i], table.Align(sides[i]))})
	}
	line = append(line, coloured{"", table.Gap + table.Printable(description(r, from.arch()))})
	if _, err := fmt.Fprintln(l.w, l.text(line)); err != nil {
		return fmt.Errorf("print the event: %w", err)
	}
	return nil
}

// colouring returns the colours of an event's cells. Failed and slow calls stand out.
func colouring(r *tracefmt.Record, result string) (colours [5]string) {
	colours[2] = groupColours[r.Group]
	switch {
	case r.Took >= verySlow:
		colours[3] = alarm
	case r.Took >= slow:
		colours[3] = yellow
	}
	if Failed(r) || r.Call == callExit && result != "0" {
		colours[4] = red
	}
	return colours
}

// coloured is a part of a line and its colour.
type coloured struct{ colour, text string }

// text joins the parts to a line, truncated to the width and without blanks at its end.
func (l *Live) text(parts []coloured) string {
	room := math.MaxInt
	if l.Width != nil {
		if width := l.Width(); width > 0 {
			room = width
		}
	}
	var b strings.Builder
	for i, p := range parts {
		if i == len(parts)-1 {
			p.text = strings.TrimRight(p.text, " ")
		}
		length := utf8.RuneCountInString(p.text)
		if length > room {
			if room > 0 {
				b.WriteString(l.paint(p.colour, table.Truncate(p.text, room)))
			}
			break
		}
		room -= length
		b.WriteString(l.paint(p.colour, p.text))
	}
	return strings.TrimRight(b.String(), " ")
}

func (l *Live) paint(colour, s string) string {
	if !l.Colour || colour == "" || strings.TrimSpace(s) == "" {
		return s
	}
	return colour + s + plain
}
