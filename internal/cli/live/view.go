package live

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/table"
)

// Unit is the noun for the things that a capture counts.
type Unit int

// Units.
const (
	Packets Unit = iota
	Events
	Requests
)

// Count names the units in the Pods' files, or of an intercept.
func (u Unit) Count() string {
	switch u {
	case Events:
		return "events"
	case Requests:
		return "requests"
	case Packets:
	}
	return "packets"
}

// Lost names the units that are missing from the Pods' files, or that found no answer.
func (u Unit) Lost() string {
	switch u {
	case Events:
		return "lost"
	case Requests:
		return "failed"
	case Packets:
	}
	return "dropped"
}

// View is everything that a Display shows at one time.
type View struct {
	// Title of the capture, like "shop/web-x7k2p (Deployment/web)".
	Title string
	// Status is like "Capturing" or "Waiting: NoPods". Plain writes a line for each change.
	Status string
	// Clock is the time elapsed, like "12s of 30s". Only Terminal shows it.
	Clock string
	// Unit of the Pods' counts.
	Unit Unit
	// Pods in their order on the screen.
	Pods []Pod
	// Table, if not nil, is below the Pods. Only Terminal shows it.
	Table *Table
	// Notes are messages for the user, like why there are no live counts. Long ones are wrapped.
	Notes []string
	// Log is below the Notes, one line for each entry. Long ones are cut in the middle. Only Terminal shows it.
	Log []string
}

// Table is a table of anything.
type Table struct {
	// Caption is the line above it.
	Caption string
	// Sides of its columns, for table.Text.
	Sides string
	// Rows of cells; the first one has the headings.
	Rows [][]string
}

// Pod is one Pod's line.
type Pod struct {
	Name  string
	Node  string
	State string
	// Count and Bytes in the files so far. Lost counts packets or events missing from them.
	Count int64
	Bytes int64
	Lost  int64
}

// minNameWidth is the width to which names of Pods are shortened at most.
const minNameWidth = 12

func heads(u Unit) []string {
	return []string{"POD", "NODE", "STATE", strings.ToUpper(u.Count()), "BYTES", strings.ToUpper(u.Lost())}
}

func (p Pod) cells() []string {
	return []string{
		p.Name, p.Node, p.State,
		strconv.FormatInt(p.Count, 10), Bytes(p.Bytes), strconv.FormatInt(p.Lost, 10),
	}
}

// Lines returns v as at most height lines of at most width characters, so that a terminal of that size neither wraps
// nor scrolls. It omits the nodes first. Then it shortens names in the middle, because Pods differ in the ends of their
// names. Pods that do not fit are counted. Zero or less means no limit.
func Lines(v View, width, height int) []string {
	lines := heading(v, width, height)
	var below []string
	for _, n := range v.Notes {
		below = append(below, wrap(n, width)...)
	}
	log := v.Log
	if height > 0 && len(v.Pods) > 0 { // the Pods keep a share
		pods := 1 + min(len(v.Pods), max(1, height/podShare))
		log = log[:min(len(log), max(0, height-len(lines)-len(below)-pods))]
	}
	for _, l := range log {
		if width > 0 {
			l = cutMiddle(l, width)
		}
		below = append(below, l)
	}
	room := len(v.Pods)
	if height > 0 {
		room = max(0, height-len(lines)-1-len(below)) // one line for the column headings
		if v.Table != nil {
			room /= podShare
		}
	}
	if len(v.Pods) > 0 && room > 0 {
		lines = append(lines, podTable(v, room, width)...)
	}
	if v.Table != nil {
		lines = append(lines, v.Table.lines(height-len(lines)-len(below), height > 0)...)
	}
	lines = append(lines, below...)
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	for i, l := range lines {
		lines[i] = table.Truncate(strings.TrimRight(table.Printable(l), " "), width)
	}
	return lines
}

// wrap returns a text as lines of at most width characters, if its words are short enough.
func wrap(s string, width int) []string {
	s = table.Printable(s)
	if width <= 0 || utf8.RuneCountInString(s) <= width {
		return []string{s}
	}
	const indent = "  "
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), indent+word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// podShare is the part of the lines that Pods have beside a Table, and keep beside a Log: one of so many.
const podShare = 3

// lines returns at most room lines, if there is a limit.
func (t *Table) lines(room int, limited bool) []string {
	rows := t.Rows
	const above = 2 // an empty line and the caption
	if limited {
		if room <= above {
			return nil
		}
		rows = rows[:min(len(rows), room-above)]
	}
	return append([]string{"", t.Caption}, strings.Split(strings.TrimSuffix(table.Text(t.Sides, rows), "\n"), "\n")...)
}

// heading returns one line, or the title above the rest if they do not fit into it.
func heading(v View, width, height int) []string {
	join := func(parts ...string) string {
		return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), table.Gap)
	}
	line, rest := join(v.Title, v.Status, v.Clock), join(v.Status, v.Clock)
	const lowest = 3 // a lower terminal has no line for it
	if rest == "" || width <= 0 || utf8.RuneCountInString(line) <= width || height > 0 && height < lowest {
		return []string{line}
	}
	return []string{v.Title, rest}
}

// podTable returns the column headings and at most room more lines.
func podTable(v View, room, width int) []string {
	pods, more := v.Pods, 0
	if len(pods) > room {
		more = len(pods) - (room - 1)
		pods = pods[:room-1]
	}
	rows := make([][]string, 0, len(pods)+1)
	rows = append(rows, heads(v.Unit))
	for _, p := range pods {
		rows = append(rows, p.cells())
	}
	lines := strings.Split(strings.TrimSuffix(table.Text(fit(rows, width), rows), "\n"), "\n")
	if more > 0 {
		lines = append(lines, fmt.Sprintf("%s and %d more Pods", table.Ellipsis, more))
	}
	return lines
}

// fit removes the node's column and then shortens the names, until a line fits into width. It returns the sides of the
// columns, for table.Text.
func fit(rows [][]string, width int) string {
	const sides = "lll"
	widths := table.Widths(rows)
	total := -len(table.Gap)
	for _, w := range widths {
		total += w + len(table.Gap)
	}
	if width <= 0 || total <= width {
		return sides
	}
	total -= widths[1] + len(table.Gap)
	name := widths[0]
	if total > width {
		name = max(min(name, minNameWidth), name-(total-width))
	}
	for i, row := range rows {
		rows[i] = slices.Delete(row, 1, 2)
		rows[i][0] = cutMiddle(row[0], name)
	}
	return sides[1:]
}

// cutMiddle shortens s to n characters and keeps both ends.
func cutMiddle(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	head := (n - 1) / 2
	return string(r[:head]) + table.Ellipsis + string(r[len(r)-(n-1-head):])
}

// Bytes returns n with a unit, in powers of 1024: "0 B", "1023 B", "1.2 MiB".
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, unit := float64(n), -1
	// 1023.95 would be printed as 1024.0 of the smaller unit.
	for unit < 0 || (value >= 1023.95 && unit < len(units)-1) {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
