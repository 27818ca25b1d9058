package keeper

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/sonde-operator/sonde/internal/account"
)

// wholeLines is where the last whole line of a file ends that has size bytes, of which so many are known to be whole.
func wholeLines(f io.ReaderAt, known, size int64) int64 {
	b := make([]byte, 64<<10)
	for end := size; end > known; {
		from := max(known, end-int64(len(b)))
		n, err := f.ReadAt(b[:end-from], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return known
		}
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			return from + int64(i) + 1
		}
		end = from
	}
	return known
}

// countLines counts whole lines, and their bytes.
func countLines(from io.Reader) (lines, size int64, err error) {
	b := make([]byte, 64<<10)
	read := int64(0)
	for {
		n, err := from.Read(b)
		lines += int64(bytes.Count(b[:n], []byte{'\n'}))
		if i := bytes.LastIndexByte(b[:n], '\n'); i >= 0 {
			size = read + int64(i) + 1
		}
		read += int64(n)
		if errors.Is(err, io.EOF) {
			return lines, size, nil
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// recountText puts what a file of a trace holds into an account. The first of JSON lines is about the trace; FLAP has two
// lines for a call.
func recountText(a *account.Account, name string, from io.Reader) (size int64, err error) {
	lines, size, err := countLines(from)
	if err != nil {
		return 0, err
	}
	a.Bytes += size
	if strings.HasSuffix(name, flapSuffix) {
		a.Events += lines / 2
	} else {
		a.Events += max(0, lines-1)
	}
	return size, nil
}
