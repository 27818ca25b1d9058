package results

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Query parameters of a stream of lines.
const (
	queryFrom   = "from"
	queryNewest = "newest"
)

// ErrNoLiveLines says that the operator or the agent is too old to stream lines.
var ErrNoLiveLines = errors.New("this cluster's Sonde is older than this plugin, and cannot show a result while it grows: ask a cluster admin to upgrade it, or save the result when the capture has ended with kubectl sonde download")

// Live copies the lines of a trace file to w while the tracer writes them, and returns nil when the trace has ended. It
// waits for a file that does not exist yet, and resumes a stream whose connection is lost. With newest, a stream that
// falls behind skips lines.
func (c *Client) Live(ctx context.Context, podUID, file string, newest bool, w io.Writer) error {
	f := &liveStream{client: c, podUID: podUID, file: file, newest: newest, w: w, split: scanLines, longest: tracefmt.MaxLine + 1}
	f.copy = f.copyLine
	return f.run(ctx)
}

// BlockSink receives the blocks of a file of packets while it grows, one with each Write.
type BlockSink interface {
	io.Writer
	// Gap says that packets were skipped, and whether the stream has waited before its first block, for a place or for the file.
	Gap(packets uint64, waited bool)
	// Until says that all packets up to a time, in nanoseconds since 1970, have come or were skipped. Older keepers do not say it.
	Until(at uint64)
}

// LiveBlocks copies the blocks of a file of packets to a sink as Live does. With newest, a stream that falls behind skips packets.
func (c *Client) LiveBlocks(ctx context.Context, podUID, file string, newest bool, to BlockSink) error {
	f := &liveStream{client: c, podUID: podUID, file: file, newest: newest, w: to, sink: to, split: pcapng.SplitBlocks, longest: pcapng.MaxBlockLen}
	f.copy = f.copyBlock
	return f.run(ctx)
}

func (f *liveStream) run(ctx context.Context) error {
	c, file := f.client, f.file
	for pause := c.timing.Pause; ; pause = min(2*pause, 4*c.timing.Pause) {
		before := f.at
		err := f.attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errSink) || errors.Is(err, pcapng.ErrFormat) || errors.Is(err, ErrNoLiveLines) || errors.Is(err, bufio.ErrTooLong) || !lineRetryable(err):
			return fmt.Errorf("follow %s: %w", file, err)
		}
		if f.at > before {
			pause = c.timing.Pause
		}
		f.waited = f.waited || f.at == 0
		waited, err := c.awaitPlace(ctx, err, 0)
		if err == nil && waited == 0 {
			err = wait(ctx, pause)
		}
		if err != nil {
			return err
		}
	}
}

// lineRetryable reports whether a retry may succeed. The file of a trace that has just started may not exist yet.
func lineRetryable(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return retryable(err) || ok && refused.FromManager && refused.Code == http.StatusNotFound
}

// errSink says that the destination failed, and not the stream.
var errSink = errors.New("the output could not be written")

// liveStream is the state of Live or LiveBlocks.
type liveStream struct {
	client       *Client
	podUID, file string
	newest       bool
	w            io.Writer
	sink         BlockSink // of LiveBlocks
	at           int64     // offset of the next byte in the file
	waited       bool      // an attempt failed before the first byte came

	// split cuts the stream into records of at most longest bytes, and copy copies one.
	split   bufio.SplitFunc
	longest int
	copy    func([]byte) error
}

// attempt copies records over one connection.
func (f *liveStream) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parameters := url.Values{queryFrom: {strconv.FormatInt(f.at, 10)}}
	if f.newest {
		parameters.Set(queryNewest, "1")
	}
	resp, err := f.client.query(ctx, f.client.live, parameters, nil, "live", f.podUID, f.file)
	if isUnknownPath(err) {
		return ErrNoLiveLines
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	records := bufio.NewScanner(newIdleReader(resp.Body, f.client.timing.Idle, cancel))
	records.Buffer(make([]byte, 0, 64<<10), f.longest)
	records.Split(f.split)
	for records.Scan() {
		if err := f.copy(records.Bytes()); err != nil {
			return err
		}
	}
	if err := records.Err(); err != nil {
		return fmt.Errorf("read a growing file: %w", cause(ctx, err))
	}
	return nil
}

// copyLine copies one line with its newline. An empty line is a heartbeat.
func (f *liveStream) copyLine(line []byte) error {
	if len(line) == 1 {
		return nil
	}
	if n, ok := tracefmt.ParseSkip(line); ok {
		f.at += n
		return nil
	}
	if _, err := f.w.Write(line); err != nil {
		return fmt.Errorf("%w: %w", errSink, err)
	}
	f.at += int64(len(line))
	return nil
}

// copyBlock copies one block. A gap is replaced by the blocks in it that are no packets.
func (f *liveStream) copyBlock(block []byte) error {
	gap, err := pcapng.ParseGap(block)
	if err != nil {
		return err
	}
	size := uint64(len(block))
	if gap != nil {
		block, size = gap.Others, gap.Bytes
		if gap.Packets > 0 {
			f.sink.Gap(gap.Packets, f.waited)
		}
	}
	for len(block) > 0 {
		n, one, err := pcapng.SplitBlocks(block, true)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: a gap that ends within a block", pcapng.ErrFormat)
		}
		if err != nil {
			return err
		}
		if _, err := f.w.Write(one); err != nil {
			return fmt.Errorf("%w: %w", errSink, err)
		}
		block = block[n:]
	}
	f.at += int64(size)
	if gap != nil && gap.Until > 0 {
		f.sink.Until(gap.Until)
	}
	return nil
}

// scanLines is a bufio.SplitFunc for lines with their newlines. An incomplete line at the end of a connection is
// dropped: the next attempt reads it again.
func scanLines(data []byte, _ bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	return 0, nil, nil
}

// isUnknownPath reports whether the manager does not have the path at all, rather than the file.
func isUnknownPath(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.FromManager && refused.Code == http.StatusNotFound && strings.HasPrefix(refused.Message, "no such path")
}
