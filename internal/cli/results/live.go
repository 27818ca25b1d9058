package results

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// ErrNoLiveLines says that the operator or the agent is too old to stream lines.
var ErrNoLiveLines = errors.New("this cluster's Sonde is older than this plugin, and cannot show a result while it grows: ask a cluster admin to upgrade it, or save the result when the capture has ended with kubectl sonde download")

// ErrNoLiveRing says that the operator or an agent is too old to stream a ring of files.
var ErrNoLiveRing = errors.New("this cluster's Sonde, or the one that began this capture, is older than this plugin, and cannot show a ring of files (rotate) while it grows: ask a cluster admin to upgrade it, and create a new capture, or save the ring when the capture has ended with kubectl sonde download")

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
	// Gap says that packets were skipped, or removed from a ring of files, and whether the stream has waited before its first block, for a place or for the file.
	Gap(packets uint64, waited bool)
	// Until says that all packets up to a time, in nanoseconds since 1970, have come or were skipped. Older keepers do not say it.
	Until(at uint64)
}

// LiveBlocks copies the blocks of a file of packets to a sink as Live does. With newest, a stream that falls behind skips packets. If the
// file is one of a ring, the stream begins with the oldest file, and goes on with those that follow. Each of them begins with a section. A
// stream that falls so far behind that its file is removed lacks packets even without newest.
func (c *Client) LiveBlocks(ctx context.Context, podUID, file string, newest bool, to BlockSink) error {
	f := &liveStream{client: c, podUID: podUID, file: file, newest: newest, w: to, sink: to, split: pcapng.SplitBlocks, longest: pcapng.MaxBlockLen}
	f.ring, f.number, _ = captureconfig.ParseRingFile(file)
	f.copy = f.copyBlock
	return f.run(ctx)
}

func (f *liveStream) run(ctx context.Context) error {
	c := f.client
	for pause := c.timing.Pause; ; pause = min(2*pause, 4*c.timing.Pause) {
		file, before := f.file, f.at
		err := f.attempt(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !f.retryable(err):
			return fmt.Errorf("follow %s: %w", f.file, err)
		}
		if f.at > before || f.file != file {
			pause = c.timing.Pause
		}
		f.waited = f.waited || !f.packets
		waited, err := c.awaitPlace(ctx, err, 0)
		if err == nil && waited == 0 {
			err = wait(ctx, pause)
		}
		if err != nil {
			return err
		}
	}
}

// retryable reports whether a retry may succeed. A single file that has just begun may not exist yet. A ring that was named exists.
func (f *liveStream) retryable(err error) bool {
	for _, final := range []error{errSink, pcapng.ErrFormat, ErrNoLiveLines, ErrNoLiveRing, bufio.ErrTooLong} {
		if errors.Is(err, final) {
			return false
		}
	}
	if f.ring != "" && isUnknownFile(err) {
		return false
	}
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
	began        bool      // a part of a file came
	packets      bool      // a packet came
	waited       bool      // an attempt failed before the first packet

	// ring is what the names of a ring's files have in common; empty for a single file. The file has this number, and the capture has
	// passed so many packets before the next byte: they came, or are missing. The keeper has named the file of this attempt.
	ring           string
	number, passed uint64
	named          bool

	// split cuts the stream into records of at most longest bytes, and copy copies one.
	split   bufio.SplitFunc
	longest int
	copy    func([]byte) error
}

// attempt copies records over one connection.
func (f *liveStream) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.named = false
	q := keeperapi.LiveQuery{From: f.at, Newest: f.newest, Ring: f.ring != "", Passed: f.passed}
	resp, err := f.client.query(ctx, f.client.live, q.Values(), nil, "live", f.podUID, f.file)
	switch {
	case isUnknownPath(err):
		return ErrNoLiveLines
	case f.ring != "" && !f.began && isUnknownFile(err): // a newer keeper begins with the oldest file
		return ErrNoLiveRing
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
	f.began = true
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
	if err := f.move(gap); err != nil {
		return err
	}
	size := uint64(len(block))
	switch {
	case gap != nil:
		block, size = gap.Others, gap.Bytes
		f.passed += gap.Packets
		if gap.Packets > 0 {
			f.sink.Gap(gap.Packets, f.waited)
		}
	case pcapng.IsPacket(block):
		f.packets = true
		f.passed++
	}
	f.began = f.began || size > 0
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
	if gap != nil {
		f.after(gap)
	}
	return nil
}

// after notes what a gap says of the blocks after it.
func (f *liveStream) after(gap *pcapng.Gap) {
	if f.ring != "" && gap.File != "" {
		f.at = int64(gap.At)
	}
	if gap.Until > 0 {
		f.sink.Until(gap.Until)
	}
}

// move notes the file of a ring that a gap names. Before it there are no blocks: an older keeper reads the one file alone.
func (f *liveStream) move(gap *pcapng.Gap) error {
	if f.ring == "" {
		return nil
	}
	if gap == nil || gap.File == "" {
		if !f.named {
			return ErrNoLiveRing
		}
		return nil
	}
	ring, number, _ := captureconfig.ParseRingFile(gap.File)
	if ring != f.ring || number < f.number || gap.At > math.MaxInt64 {
		return fmt.Errorf("%w: file %.100q follows %s", pcapng.ErrFormat, gap.File, f.file)
	}
	f.named, f.file, f.number = true, gap.File, number
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

// isUnknownFile reports whether the keeper does not have the file.
func isUnknownFile(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.FromManager && refused.Code == http.StatusNotFound && strings.HasPrefix(refused.Message, "no file ")
}

// isUnknownPath reports whether the manager does not have the path at all, rather than the file.
func isUnknownPath(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.FromManager && refused.Code == http.StatusNotFound && strings.HasPrefix(refused.Message, "no such path")
}
