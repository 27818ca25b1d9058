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

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Parameters of lines that are followed.
const (
	queryFrom   = "from"
	queryNewest = "newest"
)

// ErrNoLive says that the operator, or the agent in the cluster, is of before lines could be followed.
var ErrNoLive = errors.New("this cluster's Sonde shows no lines while a trace runs: it is older than this plugin")

// Live writes the lines of a file of a Pod's trace to w as they are written, from the first on, and returns nil when the
// trace has ended. It waits for a file that is not there yet, and takes a stream that breaks up where it broke. With
// newest lines are left out where they would come long after they were written.
func (c *Client) Live(ctx context.Context, podUID, file string, newest bool, w io.Writer) error {
	f := &followed{client: c, podUID: podUID, file: file, newest: newest, w: w}
	for pause := c.timing.Pause; ; pause = min(2*pause, 4*c.timing.Pause) {
		before := f.at
		err := f.part(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errReader) || errors.Is(err, ErrNoLive) || errors.Is(err, bufio.ErrTooLong) || !mayCome(err):
			return fmt.Errorf("follow %s: %w", file, err)
		}
		if f.at > before {
			pause = c.timing.Pause
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// mayCome reports whether asking again can help: lines of a trace that just begins are not there yet.
func mayCome(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return again(err) || ok && refused.FromManager && refused.Code == http.StatusNotFound
}

// errReader is of who reads the lines, and not of those who send them.
var errReader = errors.New("nobody takes the lines")

// followed is a file whose lines are followed.
type followed struct {
	client       *Client
	podUID, file string
	newest       bool
	w            io.Writer
	at           int64 // the first byte that has not come yet
}

// part follows for as long as one connection lasts.
func (f *followed) part(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	parameters := url.Values{queryFrom: {strconv.FormatInt(f.at, 10)}}
	if f.newest {
		parameters.Set(queryNewest, "1")
	}
	resp, err := f.client.query(ctx, parameters, nil, "live", f.podUID, f.file)
	if unknownPath(err) {
		return ErrNoLive
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(watch(resp.Body, f.client.timing.Idle, cancel))
	lines.Buffer(make([]byte, 0, 64<<10), tracefmt.MaxLine+1)
	lines.Split(wholeLine)
	for lines.Scan() {
		if err := f.take(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read lines: %w", cause(ctx, err))
	}
	return nil
}

// take one line with its end. A blank one only shows that somebody is there.
func (f *followed) take(line []byte) error {
	if len(line) == 1 {
		return nil
	}
	if n, ok := tracefmt.ParseSkip(line); ok {
		f.at += n
		return nil
	}
	if _, err := f.w.Write(line); err != nil {
		return fmt.Errorf("%w: %w", errReader, err)
	}
	f.at += int64(len(line))
	return nil
}

// wholeLine is a bufio.SplitFunc: lines with their ends. What has none at a connection's end comes again.
func wholeLine(data []byte, _ bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	return 0, nil, nil
}

// unknownPath tells a manager that has no such path from one that has no such file.
func unknownPath(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.FromManager && refused.Code == http.StatusNotFound && strings.HasPrefix(refused.Message, "no such path")
}
