package tracefmt

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// MaxLine is the longest line that is read; the kernel's bounds on arguments and paths keep a tracer's far below.
const MaxLine = 1 << 20

// Errors of a single line: reading can go on behind it.
var (
	// ErrCut is of a last line that is not whole.
	ErrCut     = errors.New("the line is cut off: its writer was killed, or is still at work")
	errTooLong = fmt.Errorf("the line has more than %d bytes", MaxLine)
	errNoJSON  = errors.New("the line is no JSON object")
)

// ErrNoTrace is of what is no trace at all.
var ErrNoTrace = errors.New("this is no trace in JSON lines: give the .ndjson file of a Trace")

// LineError is of a line that cannot be read. The next can be.
type LineError struct {
	Line int // from 1 on
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// Line of a trace; one of Header, Record and Account is there.
type Line struct {
	Header  *Header
	Record  *Record
	Account *Account
	// Raw is the line as it was read, without its end. It is good until the next line is read; all else is the caller's.
	Raw []byte
}

// Reader reads a trace line by line.
type Reader struct {
	in      *bufio.Reader
	long    []byte // a line that is longer than in's buffer
	line    int
	decoded bool // a line of a trace has been seen
	decoder decoder
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, 64<<10), decoder: decoder{names: map[string]string{}}}
}

// Next returns the next line, and io.EOF behind the last. After a *LineError the next call reads on; all other errors
// are final. Lines and keys that this version does not know are left out.
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
			return Line{}, r.blame(err, cut)
		}
		if line.Header != nil || line.Record != nil || line.Account != nil {
			r.decoded = true
			return line, nil
		}
	}
}

// blame says what a line that cannot be read means: for the file, if it is the first, else for the line alone.
func (r *Reader) blame(err error, last bool) error {
	switch {
	case errors.Is(err, errNoJSON) && !r.decoded:
		return ErrNoTrace
	case errors.Is(err, errVersion):
		return err
	case errors.Is(err, errNoJSON) && last:
		err = ErrCut
	}
	return &LineError{r.line, err}
}

// Ready reports whether a whole line is there already, so that the next call of Next does not wait.
func (r *Reader) Ready() bool {
	b, _ := r.in.Peek(r.in.Buffered())
	return bytes.IndexByte(b, '\n') >= 0
}

// read returns a line with its end. A last one without is returned together with io.EOF.
func (r *Reader) read() ([]byte, error) {
	b, err := r.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return b, wrap(err)
	}
	r.long = append(r.long[:0], b...)
	for errors.Is(err, bufio.ErrBufferFull) {
		b, err = r.in.ReadSlice('\n')
		if len(r.long) <= MaxLine { // else it is only left behind
			r.long = append(r.long, b...)
		}
	}
	if len(r.long) > MaxLine && (err == nil || errors.Is(err, io.EOF)) {
		r.line++
		if !r.decoded {
			return nil, ErrNoTrace
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

var errVersion = errors.New("the trace is of a newer Sonde")

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
			return Line{}, fmt.Errorf("read the trace's header: %w", err)
		}
		if v := line.Header.Version; v > Version {
			return Line{}, fmt.Errorf("%w: its format is version %d, and this program reads %d. Update kubectl-sonde", errVersion, v, Version)
		}
	case kindAccount:
		line.Account = &Account{}
		if err := json.Unmarshal(raw, line.Account); err != nil {
			return Line{}, fmt.Errorf("read the trace's account: %w", err)
		}
	}
	return line, nil
}
