package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errChanged restarts a download: the bytes read so far are of another version of the file.
var errChanged = errors.New("the file changed during its download")

// Download writes a file of the Pod with that UID to dst, which must be empty, and returns its size in bytes. A file of more
// than most bytes is an error, and no more are written. If the connection is lost, it continues where the download stopped.
// progress, which may be nil, is called with the number of bytes written and the size of the file. The size is -1 while it is
// unknown.
func (c *Client) Download(ctx context.Context, podUID, file string, most int64, dst *os.File, progress func(done, total int64)) (int64, error) {
	t := &transfer{client: c, podUID: podUID, file: file, dst: dst, most: most, total: -1, progress: progress}
	pause, busy := c.timing.Pause, time.Duration(0)
	for failures := 0; ; {
		before := t.done
		err := t.attempt(ctx)
		switch {
		case err == nil:
			return t.done, nil
		case ctx.Err() != nil:
			return t.done, context.Cause(ctx)
		case !retryable(err):
			return t.done, fmt.Errorf("download %s: %w", file, err)
		}
		if t.done > before {
			failures, pause, busy = 0, c.timing.Pause, 0
		}
		if waited, err := c.awaitPlace(ctx, err, busy); waited > 0 || err != nil {
			if err != nil {
				return t.done, err
			}
			busy += waited
			continue
		}
		if failures++; failures > c.timing.Retries {
			return t.done, fmt.Errorf("download %s: %d attempts failed at byte %d: %w", file, failures, t.done, err)
		}
		if err := wait(ctx, pause); err != nil {
			return t.done, err
		}
		pause = min(2*pause, 16*c.timing.Pause)
	}
}

// awaitPlace waits as long as a server with too much to do asks for, and returns how long. It does not wait after other
// errors, nor if the download has been busy for Timing.Busy already.
func (c *Client) awaitPlace(ctx context.Context, err error, busy time.Duration) (time.Duration, error) {
	refused, ok := errors.AsType[*Error](err)
	if !ok || refused.RetryAfter == 0 || busy >= c.timing.Busy {
		return 0, nil
	}
	if busy == 0 && c.OnBusy != nil {
		c.OnBusy(refused.Error())
	}
	// Clients that were refused together do not come back together.
	d := refused.RetryAfter + rand.N(refused.RetryAfter/2)
	return d, wait(ctx, d)
}

// retryable reports whether a retry may succeed. It cannot after a refusal or an error of the local disk.
func retryable(err error) bool {
	if refused, ok := errors.AsType[*Error](err); ok {
		return refused.Code >= http.StatusInternalServerError || refused.Code == http.StatusTooManyRequests
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) { // the ResultAccess
		return false
	}
	var disk *diskError
	var large *tooLargeError
	return !errors.As(err, &disk) && !errors.As(err, &large)
}

type transfer struct {
	client       *Client
	podUID, file string
	dst          *os.File
	most         int64
	done, total  int64
	progress     func(done, total int64)
}

// attempt downloads the rest of the file over one connection.
func (t *transfer) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	header := http.Header{}
	if t.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", t.done))
	}
	resp, err := t.client.get(ctx, header, "files", t.podUID, t.file)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := t.locate(resp); err != nil || t.done == t.total {
		return err
	}
	if t.total > t.most {
		return &tooLargeError{t.most}
	}
	if _, err := io.Copy(t, newIdleReader(resp.Body, t.client.timing.Idle, cancel)); err != nil {
		return cause(ctx, err)
	}
	if t.total >= 0 && t.done != t.total {
		return fmt.Errorf("%w: %d of %d bytes were received", io.ErrUnexpectedEOF, t.done, t.total)
	}
	return nil
}

// locate sets done and total according to the bytes of the file that resp holds.
func (t *transfer) locate(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusOK:
		t.total = resp.ContentLength
		return t.restart()
	case http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
	default:
		return fmt.Errorf("the results endpoint answered %s", resp.Status)
	}
	start, total, err := contentRange(resp.Header.Get("Content-Range"))
	if err != nil {
		return err
	}
	if start < 0 { // 416: there are no bytes after the requested offset
		start = total
	}
	if start != t.done || (t.total >= 0 && total != t.total) {
		t.total = -1
		if err := t.restart(); err != nil {
			return err
		}
		return errChanged
	}
	t.total = total
	return nil
}

func (t *transfer) restart() error {
	t.done = 0
	if err := t.dst.Truncate(0); err != nil {
		return &diskError{err}
	}
	return nil
}

// Write appends b to the file.
func (t *transfer) Write(b []byte) (int, error) {
	if int64(len(b)) > t.most-t.done {
		return 0, &tooLargeError{t.most}
	}
	n, err := t.dst.WriteAt(b, t.done)
	t.done += int64(n)
	if t.progress != nil {
		t.progress(t.done, t.total)
	}
	if err != nil {
		return n, &diskError{err}
	}
	return n, nil
}

// tooLargeError says that the server sends more than the file can have.
type tooLargeError struct{ most int64 }

func (e *tooLargeError) Error() string {
	return fmt.Sprintf("the results endpoint sends more than the %d bytes that this file can have: ask your cluster admin what serves Service sonde-results", e.most)
}

// diskError is an error of the local disk.
type diskError struct{ err error }

func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// contentRange reads "bytes START-END/TOTAL", or "bytes */TOTAL" with START -1 (RFC 9110, section 14.4).
func contentRange(s string) (start, total int64, err error) {
	bad := fmt.Errorf("the results endpoint answered with Content-Range %q", s)
	s, ok := strings.CutPrefix(s, "bytes ")
	span, size, ok2 := strings.Cut(s, "/")
	if !ok || !ok2 {
		return 0, 0, bad
	}
	if total, err = parseSize(size); err != nil {
		return 0, 0, bad
	}
	if span == "*" {
		return -1, total, nil
	}
	from, to, ok := strings.Cut(span, "-")
	start, err = parseSize(from)
	end, err2 := parseSize(to)
	if !ok || err != nil || err2 != nil || end < start || end != total-1 {
		return 0, 0, bad
	}
	return start, total, nil
}

// parseSize reads digits only; strconv.ParseInt would accept a sign.
func parseSize(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("read a size: %w", err)
	}
	return int64(n), nil
}
