package live

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"
)

// Keys that end a program. A terminal in raw mode sends no signal for them.
const (
	KeyInterrupt = 'C' & 0x1f // Ctrl-C
	KeyQuit      = 'q'
)

// Keys reads single key presses of a terminal in raw mode.
type Keys struct {
	file    *os.File
	before  *term.State
	restore sync.Once
}

// NewKeys puts a terminal into raw mode, and calls each with each byte that is typed. Restore ends that.
func NewKeys(terminal *os.File, each func(key byte)) (*Keys, error) {
	before, err := term.MakeRaw(int(terminal.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	k := &Keys{file: terminal, before: before}
	go func() {
		var b [16]byte
		for {
			n, err := terminal.Read(b[:])
			for _, key := range b[:n] {
				each(key)
			}
			if err != nil {
				return
			}
		}
	}()
	return k, nil
}

// Restore leaves raw mode. It may be called several times.
func (k *Keys) Restore() {
	k.restore.Do(func() { _ = term.Restore(int(k.file.Fd()), k.before) })
}

// RawWriter writes lines to a terminal in raw mode, which does not return to the first column by itself.
type RawWriter struct{ io.Writer }

// Write implements io.Writer.
func (w RawWriter) Write(b []byte) (int, error) {
	if _, err := w.Writer.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, fmt.Errorf("write to the terminal: %w", err)
	}
	return len(b), nil
}
