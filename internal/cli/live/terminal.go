package live

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/sonde-operator/sonde/internal/wire/table"
)

// Display shows Views one after the other. Its methods may be called from several goroutines.
type Display interface {
	// Show replaces the current View by v.
	Show(v View)
	// PrintLine prints a line that stays on the screen.
	PrintLine(line string)
	// Print writes whole lines to w, which may be the same terminal.
	Print(w io.Writer, text []byte) error
	// Close leaves the last View on the screen and ends the display.
	Close()
}

// Escape sequences that every terminal since the VT100 knows (ECMA-48: CUU, EL, ED).
const (
	cursorUp   = "\x1b[%dA"
	eraseRight = "\x1b[K"
	eraseBelow = "\x1b[J"
)

// Terminal redraws a View in place. Each frame is one write that overwrites line by line and erases only the rest
// of the last frame, so that the screen does not flicker.
type Terminal struct {
	mu   sync.Mutex
	w    io.Writer
	size func() (width, height int)
	// The last frame: its lines, the width of the terminal at that time, and the View.
	drawn []string
	width int
	view  View
}

// NewTerminal returns a display on w. size returns the size of the terminal in characters, or zero if it is unknown. It
// is called before each frame, because the window may have been resized.
func NewTerminal(w io.Writer, size func() (width, height int)) *Terminal {
	return &Terminal{w: w, size: size}
}

// Show draws v over the last frame.
func (t *Terminal) Show(v View) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.view = v
	t.draw("")
}

// PrintLine prints a line above the View.
func (t *Terminal) PrintLine(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draw(line)
}

// Print writes text to w in place of the View, and draws the View below it.
func (t *Terminal) Print(w io.Writer, text []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	t.draw("")
	return nil
}

// erase removes the last frame from the screen.
func (t *Terminal) erase() {
	if len(t.drawn) == 0 {
		return
	}
	width, _ := t.size()
	_, _ = fmt.Fprintf(t.w, "\r"+cursorUp+eraseBelow, t.rowsDrawn(width))
	t.drawn = nil
}

// Close leaves the last frame where it is, and an empty line below it.
func (t *Terminal) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.drawn) > 0 {
		_, _ = t.w.Write([]byte("\n"))
	}
	t.drawn = nil
}

// draw writes a line, if any, and the current View over the last frame.
func (t *Terminal) draw(text string) {
	width, height := t.size()
	lines := t.lines(width, height)
	if text == "" && width == t.width && slices.Equal(lines, t.drawn) {
		return
	}
	var b bytes.Buffer
	// The terminal may have echoed a ^C, which moved the cursor from the first column.
	b.WriteByte('\r')
	if rows := t.rowsDrawn(width); rows > 0 {
		fmt.Fprintf(&b, cursorUp, rows)
	}
	if text != "" {
		b.WriteString(table.Printable(text) + eraseRight + "\n")
	}
	for _, l := range lines {
		b.WriteString(l + eraseRight + "\n")
	}
	b.WriteString(eraseBelow)
	_, _ = t.w.Write(b.Bytes()) // a closed terminal must not end a capture
	t.drawn, t.width = lines, width
}

func (t *Terminal) lines(width, height int) []string {
	if t.view.Title == "" {
		return nil
	}
	if height > 1 {
		height-- // the cursor's own line
	}
	return Lines(t.view, width, height)
}

// rowsDrawn returns how many rows the last frame has now. A terminal that became narrower has wrapped its lines.
func (t *Terminal) rowsDrawn(width int) int {
	rows := 0
	for _, l := range t.drawn {
		n := utf8.RuneCountInString(l)
		if width > 0 && n > width {
			rows += (n - 1) / width
		}
		rows++
	}
	return rows
}
