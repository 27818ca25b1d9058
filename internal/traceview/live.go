package traceview

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/tracefmt"
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
	plain   = "\x1b[0m"
)

var groupColours = map[string]string{
	"process": magenta, "file": cyan, "io": blue, "memory": yellow, "network": green, "signal": red,
}

// slow is from where on a duration is coloured.
const slow = 10 * time.Millisecond

// Live writes a line for each event: when, which process, its name, the call, how long it took, its result, and what it
// was about, which comes last because it is as long as it is.
type Live struct {
	// Colour the lines, which only a terminal understands.
	Colour bool
	// Pods shows each event's Pod: there are several.
	Pods bool

	w      io.Writer
	widths [5]int
}

// NewLive returns a Live on w, to which each line is one write.
func NewLive(w io.Writer) *Live {
	return &Live{w: w, widths: [5]int{8, 6, 10, 6, 6}}
}

// widest a column grows, so that one hostile name does not push all others out of sight.
const widest = 48

// Show writes the line of an event of the source.
func (l *Live) Show(from *Source, r *tracefmt.Record) error {
	process := who(r)
	if l.Pods {
		process = quoted(from.Pod()) + "/" + process
	}
	colours := [5]string{"", "", groupColours[r.Group], "", ""}
	cells := [5]string{process, string(r.Comm), r.Call, took(r.Took), result(r)}
	if r.Took >= slow {
		colours[3] = yellow
	}
	if failed(r) || r.Call == callExit && cells[4] != "0" {
		colours[4] = red
	}
	var b strings.Builder
	b.WriteString(l.paint(dim, clockTime(r.Time)))
	for i, c := range cells {
		c = cut(live.OneLine(c), widest)
		l.widths[i] = max(l.widths[i], utf8.RuneCountInString(c))
		b.WriteString("  " + l.paint(colours[i], fill(c, l.widths[i], i >= 3)))
	}
	b.WriteString("  " + live.OneLine(what(r, from.arch())))
	if _, err := fmt.Fprintln(l.w, strings.TrimRight(b.String(), " ")); err != nil {
		return fmt.Errorf("print the event: %w", err)
	}
	return nil
}

func (l *Live) paint(colour, s string) string {
	if !l.Colour || colour == "" || strings.TrimSpace(s) == "" {
		return s
	}
	return colour + s + plain
}
