package keeper

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

// lastLineEnd returns where the last complete line of a file of size bytes ends. The first known bytes are known to be
// complete.
func lastLineEnd(f io.ReaderAt, known, size int64) int64 {
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

// metaPrefix starts lines about the trace, which are not events (internal/wire/tracefmt).
var metaPrefix = []byte(`{"sonde":`)

// countLines counts the complete lines that do not start with except, and the bytes of all complete lines.
func countLines(from io.Reader, except []byte) (lines, size int64, err error) {
	r := bufio.NewReaderSize(from, 64<<10)
	length, counts := int64(0), int64(0) // the current line: its bytes so far, and 1 if it counts
	for {
		part, err := r.ReadSlice('\n')
		if length == 0 && !bytes.HasPrefix(part, except) {
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

// recountText adds the events of a trace's file to an account. FLAP has two lines for a call.
func recountText(a *account.Account, name string, from io.Reader) (size int64, err error) {
	lines, size, err := countLines(from, metaPrefix)
	if err != nil {
		return 0, err
	}
	if strings.HasSuffix(name, flapSuffix) {
		lines /= 2
	}
	a.Bytes, a.Events = a.Bytes+size, a.Events+lines
	return size, nil
}
