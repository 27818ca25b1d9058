package keeperapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errSilence cancels a stream.
var errSilence = errors.New("the keeper has sent nothing")

// timeoutBody is a body whose Read fails when nothing arrives for a while. The timer runs only during a Read: a slow reader
// is not a silent keeper.
type timeoutBody struct {
	io.ReadCloser
	cause   func() error
	cancel  context.CancelCauseFunc
	silence time.Duration
	timer   *time.Timer
}

// newTimeoutBody wraps the body of a request that runs under ctx; cancel ends ctx.
func newTimeoutBody(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, silence time.Duration) *timeoutBody {
	timer := time.AfterFunc(silence, func() { cancel(errSilence) })
	timer.Stop()
	return &timeoutBody{
		ReadCloser: body, cancel: cancel, silence: silence, timer: timer,
		cause: func() error { return context.Cause(ctx) },
	}
}

// Read implements io.Reader.
func (b *timeoutBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.silence)
	defer b.timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(b.cause(), errSilence) {
		return n, fmt.Errorf("%w for %v", errSilence, b.silence)
	}
	return n, err
}

// Close implements io.Closer and ends the request.
func (b *timeoutBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
