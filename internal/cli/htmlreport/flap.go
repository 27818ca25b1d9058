package htmlreport

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Arguments of FLAP that are not arguments of the call.
const (
	flapResult  = "ret"
	flapLatency = "latency"
	flapPath    = "fname"
)

// newFlapReader returns the lines of a file of FLAP as JSON lines: an event for each end of a call, at the node's uptime. The
// reader must be closed.
func newFlapReader(name string, r io.Reader) io.ReadCloser {
	out, w := io.Pipe()
	go func() { w.CloseWithError(convertFlap(w, name, r)) }()
	return out
}

func convertFlap(w io.Writer, name string, r io.Reader) error {
	out := bufio.NewWriterSize(w, 64<<10)
	line, err := tracefmt.AppendHeader(nil, tracefmt.Header{Pod: name, Durations: true})
	if err != nil {
		return err
	}
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 0, 64<<10), tracefmt.MaxLine)
	var encoder tracefmt.Encoder
	enter := map[uint32]tracefmt.FlapLine{} // by thread; both lines of a call follow each other
	for in.Scan() {
		if _, err := out.Write(line); err != nil {
			return fmt.Errorf("convert FLAP: %w", err)
		}
		line = line[:0]
		parsed, err := tracefmt.ParseFlap(in.Text())
		switch {
		case err != nil:
			line = append(append(line, strconv.Quote(in.Text())...), '\n') // the reader counts it as damaged
		case parsed.Enter && len(enter) < maxThreads:
			enter[parsed.TID] = parsed
		case !parsed.Enter:
			begin := enter[parsed.TID]
			delete(enter, parsed.TID)
			line = encoder.Append(line, flapRecord(&begin, &parsed))
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("read FLAP: %w", err)
	}
	if _, err := out.Write(line); err != nil {
		return fmt.Errorf("convert FLAP: %w", err)
	}
	return out.Flush()
}

// maxThreads limits the calls whose end has not come.
const maxThreads = 1 << 16

// flapRecord makes an event of the lines of a call. FLAP has no PIDs of containers.
func flapRecord(begin, end *tracefmt.FlapLine) *tracefmt.Record {
	r := &tracefmt.Record{
		Time: time.Unix(0, int64(end.Boot)), Call: end.Call, Group: "flap", PID: end.PID, HostPID: end.PID, TID: end.TID, HostTID: end.TID,
		Comm: []byte(end.Proc), Took: -1,
	}
	if n, err := strconv.ParseInt(end.Args[flapLatency], 10, 64); err == nil && n >= 0 {
		r.Took = time.Duration(n)
	} else if begin.Ends(end) || end.Ends(begin) {
		r.Took = end.Boot - begin.Boot
	}
	if n, err := strconv.ParseInt(end.Args[flapResult], 10, 64); err == nil {
		r.HasRet, r.Ret = true, n
	}
	if path := begin.Args[flapPath]; path != "" && path != "-" {
		r.Path = []byte(path)
	}
	return r
}
