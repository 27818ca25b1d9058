package htmlreport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-operator/sonde/internal/cli/packetview"
	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// maxFiles limits the files of a directory, which are open at the same time.
const maxFiles = 256

// kind of a file, by its beginning.
type kind int

const (
	unknown kind = iota
	packets
	events
	flap
)

// Read reads a capture or a trace and returns its page. path is a file, or a directory with the files of one capture or trace. name
// is how the page calls it.
func Read(ctx context.Context, path, name string, outcome Outcome) (*Page, error) {
	paths, err := filesOf(path)
	if err != nil {
		return nil, err
	}
	in := &input{}
	defer in.close()
	for _, one := range paths {
		if err := in.open(one); err != nil {
			return nil, err
		}
	}
	switch in.kind {
	case packets:
		return in.capture(ctx, name, outcome)
	case events, flap:
		return in.trace(ctx, name, outcome)
	case unknown:
	}
	return nil, fmt.Errorf("%s has no files of a capture or trace: name a directory with .pcapng, .ndjson or .log files", path)
}

// filesOf returns the files to read: path itself, or the captures and traces in the directory.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open the capture or trace: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("open the capture or trace: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.Type().IsRegular() && slices.Contains([]string{".pcapng", ".ndjson", ".log"}, ext) {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	if len(paths) > maxFiles {
		return nil, fmt.Errorf("%s has %d files, and a report has at most %d: name one of the files", path, len(paths), maxFiles)
	}
	return paths, nil
}

// input holds the open files of one capture or trace.
type input struct {
	kind    kind
	names   []string
	readers []*bufio.Reader
	files   []*os.File
}

func (in *input) close() {
	for _, f := range in.files {
		_ = f.Close()
	}
}

func (in *input) open(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open the capture or trace: %w", err)
	}
	in.files = append(in.files, f)
	r := bufio.NewReaderSize(f, 64<<10)
	found := kindOf(r)
	switch {
	case found == unknown && isPcap(r):
		return fmt.Errorf("%[1]s is a pcap file, and not pcapng. To convert it:\n  editcap -F pcapng %[1]s %s.pcapng", path, strings.TrimSuffix(path, ".pcap"))
	case found == unknown:
		return fmt.Errorf("%s is not a capture or trace: name a .pcapng or .ndjson file, or a directory of them", path)
	case in.kind != unknown && in.kind != found:
		return fmt.Errorf("%s is of another kind than the other files of its directory: name one file", path)
	}
	in.kind, in.names, in.readers = found, append(in.names, filepath.Base(path)), append(in.readers, r)
	return nil
}

// kindOf looks at the beginning of a file. An empty file is one of FLAP, whose files have no header.
func kindOf(r *bufio.Reader) kind {
	start, err := r.Peek(4)
	switch {
	case len(start) == 0 && errors.Is(err, io.EOF):
		return flap
	case string(start) == "\n\r\r\n":
		return packets
	case len(start) > 0 && start[0] == '{':
		return events
	case len(start) > 0 && start[0] >= '0' && start[0] <= '9':
		return flap
	}
	return unknown
}

// isPcap reports whether a file begins as one of the older format: by its magic number, for either byte order and resolution of time.
func isPcap(r *bufio.Reader) bool {
	start, _ := r.Peek(4)
	return slices.Contains([]string{"\xd4\xc3\xb2\xa1", "\xa1\xb2\xc3\xd4", "\x4d\x3c\xb2\xa1", "\xa1\xb2\x3c\x4d"}, string(start))
}

func (in *input) capture(ctx context.Context, name string, outcome Outcome) (*Page, error) {
	var r io.Reader = in.readers[0]
	cut := false // written before the end of the merged stream is seen
	if len(in.readers) > 1 {
		merged, w := io.Pipe()
		defer merged.Close()
		go func() {
			truncated, err := mergeInto(w, in.readers)
			cut = truncated
			w.CloseWithError(err)
		}()
		r = merged
	}
	s, err := packetview.Read(cancellable{ctx, r})
	if errors.Is(err, pcapng.ErrFormat) {
		return nil, fmt.Errorf("%s: %w: the file is damaged: download it again", name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.Truncated = s.Truncated || cut
	return CapturePage(name, s, outcome), nil
}

func mergeInto(w io.Writer, readers []*bufio.Reader) (truncated bool, err error) {
	sources := make([]io.Reader, len(readers))
	for i, r := range readers {
		sources[i] = r
	}
	// The order of packets matters over short times only, so the buffers may be smaller than a merged file needs.
	result, err := pcapng.Merge(w, sources, pcapng.MergeOptions{MaxBuffered: 128 << 20 / (2 * len(sources))})
	return len(result.Truncated) > 0, err
}

// cancellable ends a read when its context ends.
type cancellable struct {
	ctx context.Context //nolint:containedctx // io.Reader has no other place for it
	io.Reader
}

func (c cancellable) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.Reader.Read(b)
}

func (in *input) trace(ctx context.Context, name string, outcome Outcome) (*Page, error) {
	t := NewTrace()
	t.Uptime = in.kind == flap
	sources := make([]*traceview.Source, len(in.readers))
	for i, r := range in.readers {
		var lines io.Reader = r
		if in.kind == flap {
			converted := newFlapReader(in.names[i], r)
			defer converted.Close()
			lines = converted
		}
		sources[i] = traceview.NewSource(in.names[i], lines)
	}
	if err := traceview.Read(ctx, sources, t); err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return t.Page(name, outcome), nil
}
