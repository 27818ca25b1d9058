package keeperapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errSilence is why a stream was given up.
var errSilence = errors.New("the keeper sends nothing any more")

// impatientBody is a body whose Read fails when nothing arrives for a while. The clock runs only during a Read, so
// that a slow reader is not taken for a silent keeper.
type impatientBody struct {
	io.ReadCloser
	cause   func() error
	cancel  context.CancelCauseFunc
	silence time.Duration
	timer   *time.Timer
}

// newImpatientBody takes over body, whose request runs under the context that cancel ends and cause explains.
func newImpatientBody(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, silence time.Duration) *impatientBody {
	timer := time.AfterFunc(silence, func() { cancel(errSilence) })
	timer.Stop()
	return &impatientBody{
		ReadCloser: body, cancel: cancel, silence: silence, timer: timer,
		cause: func() error { return context.Cause(ctx) },
	}
}

// Read implements io.Reader.
func (b *impatientBody) Read(p []byte) (int, error) {
	b.timer.Reset(b.silence)
	defer b.timer.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && errors.Is(b.cause(), errSilence) {
		return n, fmt.Errorf("%w for %v", errSilence, b.silence)
	}
	return n, err
}

// Close implements io.Closer and ends the request.
func (b *impatientBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
