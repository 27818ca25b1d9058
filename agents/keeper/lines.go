package keeper

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/account"
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

// aboutTrace begins a line that is about the trace, and not an event of it (internal/wire/tracefmt).
var aboutTrace = []byte(`{"sonde":`)

// countLines counts whole lines but those that begin with but, and the bytes of all.
func countLines(from io.Reader, but []byte) (lines, size int64, err error) {
	r := bufio.NewReaderSize(from, 64<<10)
	length, counts := int64(0), int64(0) // of the line that is read
	for {
		part, err := r.ReadSlice('\n')
		if length == 0 && !bytes.HasPrefix(part, but) {
			counts = 1
		}
		length += int64(len(part))
		switch {
		case err == nil:
			lines, size = lines+counts, size+length
			length, counts = 0, 0
		case errors.Is(err, io.EOF):
			return lines, size, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return 0, 0, err
		}
	}
}

// recountText puts what a file of a trace holds into an account. FLAP has two lines for a call.
func recountText(a *account.Account, name string, from io.Reader) (size int64, err error) {
	lines, size, err := countLines(from, aboutTrace)
	if err != nil {
		return 0, err
	}
	if strings.HasSuffix(name, flapSuffix) {
		lines /= 2
	}
	a.Bytes, a.Events = a.Bytes+size, a.Events+lines
	return size, nil
}
