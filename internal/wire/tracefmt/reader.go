package tracefmt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that a Reader accepts, in bytes. The kernel limits arguments and paths to far less.
const MaxLine = 1 << 20

// Errors of a single line: the next line can be read.
var (
	// ErrTruncated says that the last line is incomplete.
	ErrTruncated = errors.New("the line is truncated: its writer was killed or is still running")
	errTooLong   = fmt.Errorf("the line is longer than %d bytes", MaxLine)
	errNotJSON   = errors.New("the line is not a JSON object")
)

// ErrNotTrace says that the input is not a trace at all.
var ErrNotTrace = errors.New("this is not a trace in JSON lines: name the .ndjson file of a Trace")

// LineError says why a line cannot be read. The next line can be.
type LineError struct {
	Line int // from 1 on
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the reason.
func (e *LineError) Unwrap() error { return e.Err }

// Line of a trace. One of Header, Record and Account is set.
type Line struct {
	Header  *Header
	Record  *Record
	Account *Account
	// Raw is the line as it was read, without its newline. It is valid until the next line is read; the other fields
	// stay valid.
	Raw []byte
}

// Reader reads a trace line by line.
type Reader struct {
	in      *bufio.Reader
	long    []byte // a line that is longer than the buffer of in
	line    int
	decoded bool // a line of a trace has been read
	decoder decoder
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 64<<10), decoder: decoder{names: map[string]string{}}}
}

// Next returns the next line, or io.EOF after the last. A *LineError concerns one line, and the next call returns the
// line after it; all other errors are final. Next ignores lines and keys that this version does not know.
func (r *Reader) Next() (Line, error) {
	for {
		raw, err := r.read()
		if len(raw) == 0 && err != nil {
			return Line{}, err
		}
		cut := errors.Is(err, io.EOF)
		if err != nil && !cut {
			return Line{}, err
		}
		r.line++
		raw = bytes.TrimSpace(raw)
		if len(raw) == 0 {
			continue
		}
		line, err := r.decode(raw)
		if err != nil {
			return Line{}, r.classify(err, cut)
		}
		if line.Header != nil || line.Record != nil || line.Account != nil {
			r.decoded = true
			return line, nil
		}
	}
}

// classify returns the error for a line that cannot be decoded: of the input if no line was read before, else of the
// line.
func (r *Reader) classify(err error, last bool) error {
	switch {
	case errors.Is(err, errNotJSON) && !r.decoded:
		return ErrNotTrace
	case errors.Is(err, errVersion):
		return err
	case errors.Is(err, errNotJSON) && last:
		err = ErrTruncated
	}
	return &LineError{r.line, err}
}

// Ready reports whether a whole line is buffered, so that Next will not block.
func (r *Reader) Ready() bool {
	b, _ := r.in.Peek(r.in.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

// read returns a line with its newline. The last line, if it has none, is returned together with io.EOF.
func (r *Reader) read() ([]byte, error) {
	b, err := r.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return b, wrap(err)
	}
	r.long = append(r.long[:0], b...)
	for errors.Is(err, bufio.ErrBufferFull) {
		b, err = r.in.ReadSlice('\n')
		if len(r.long) <= MaxLine { // a longer line is only skipped
			r.long = append(r.long, b...)
		}
	}
	if len(r.long) > MaxLine && (err == nil || errors.Is(err, io.EOF)) {
		r.line++
		if !r.decoded {
			return nil, ErrNotTrace
		}
		return nil, &LineError{r.line, errTooLong}
	}
	return r.long, wrap(err)
}

func wrap(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("read the trace: %w", err)
}

var errVersion = errors.New("a newer Sonde wrote this trace")

func (r *Reader) decode(raw []byte) (Line, error) {
	record := &Record{Took: -1}
	kind, err := r.decoder.decode(raw, record)
	if err != nil {
		return Line{}, err
	}
	line := Line{Raw: raw}
	switch kind {
	case "":
		line.Record = record
	case kindHeader:
		line.Header = &Header{}
		if err := json.Unmarshal(raw, line.Header); err != nil {
			return Line{}, fmt.Errorf("read the header of the trace: %w", err)
		}
		if v := line.Header.Version; v > Version {
			return Line{}, fmt.Errorf("%w: its format has version %d, and this program reads up to %d. Update kubectl-sonde", errVersion, v, Version)
		}
	case kindAccount:
		line.Account = &Account{}
		if err := json.Unmarshal(raw, line.Account); err != nil {
			return Line{}, fmt.Errorf("read the account of the trace: %w", err)
		}
	}
	return line, nil
}
