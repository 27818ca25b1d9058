package keeperapi

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

// stuckBody blocks until its context ends, like the body of a silent connection.
type stuckBody struct{ done <-chan struct{} }

func (b stuckBody) Read([]byte) (int, error) { <-b.done; return 0, context.Canceled }
func (b stuckBody) Close() error             { return nil }

func TestImpatientBodyGivesUpASilentKeeper(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	b := newTimeoutBody(ctx, cancel, stuckBody{ctx.Done()}, time.Millisecond)
	if _, err := io.ReadAll(b); !errors.Is(err, errSilence) {
		t.Fatalf("Read: %v, want %v", err, errSilence)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestImpatientBodyWaitsForASlowReader(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r, w := io.Pipe()
	b := newTimeoutBody(ctx, cancel, r, 50*time.Millisecond)
	go func() { _, _ = w.Write([]byte("ab")); w.Close() }()
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ctx.Done():
		t.Fatalf("ended between two reads: %v", context.Cause(ctx))
	case <-time.After(150 * time.Millisecond):
	}
	if rest, err := io.ReadAll(b); err != nil || string(rest) != "b" {
		t.Fatalf("the rest is %q, %v", rest, err)
	}
}
