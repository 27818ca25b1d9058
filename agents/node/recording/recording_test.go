package recording

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestReasonOf(t *testing.T) {
	ended := func(cause error) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		return ctx
	}
	late, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	for name, tc := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a row of a table
		want Reason
	}{
		"its time is over": {late, Duration},
		"the Pod left":     {ended(ErrTargetGone), TargetGone},
		"another cause":    {ended(errors.New("enough")), Stopped},
		"no cause":         {ended(nil), Stopped},
	} {
		if got := ReasonOf(tc.ctx); got != tc.want || !got.Complete() {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if DiskFull.Complete() || Error.Complete() {
		t.Error("a result with DiskFull or Error is complete")
	}
}
