package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/agents/gate"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// The gate of a gated Pod is opened when the probe is attached, not before. The recording continues in any case.
func TestGateIsOpenedOnceAttached(t *testing.T) {
	stuck := fmt.Errorf("process 7: %w", gate.ErrStuck)
	first := func(err error, times int32) func(int32) error {
		return func(n int32) error {
			if n <= times {
				return err
			}
			return nil
		}
	}
	tests := map[string]struct {
		none        bool
		answers     func(n int32) error // result of the n-th attempt
		wantCalls   int32
		wantMessage string
	}{
		"at once":        {answers: first(nil, 0), wantCalls: 1},
		"no gate":        {none: true},
		"after an error": {answers: first(errors.New("no /proc"), 1), wantCalls: 2},
		"stuck for long": {answers: first(stuck, 2), wantCalls: 3},
		"stuck for ever": {answers: first(stuck, math.MaxInt32), wantCalls: 2, wantMessage: "signalled and did not open"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.options.Gate = !tc.none
			var calls atomic.Int32
			enough := make(chan struct{})
			b.awaitGate = func(_ context.Context, uid string) (gate.Opened, error) {
				select {
				case <-b.engine.opened:
				default:
					t.Error("the gate is opened before the probe is attached")
				}
				n := calls.Add(1)
				if n == tc.wantCalls {
					defer close(enough)
				}
				if uid != b.options.PodUID {
					t.Errorf("asked to open the gate of %s", uid)
				}
				if err := tc.answers(n); err != nil {
					return gate.Opened{}, err
				}
				return gate.Opened{ContainerID: "c0ffee", Took: time.Millisecond}, nil
			}
			b.act = func(_ *testing.T, b *bench, _ context.CancelFunc) {
				if !tc.none {
					<-enough
				}
				if !tc.none && tc.wantMessage == "" {
					awaitText(t, filepath.Join(b.options.ResultsDir, captureconfig.ProgressFile), `"gate":"c0ffee"`)
				}
				close(b.target.left)
			}
			code, a := b.run(t)
			if code != ExitComplete || a.Reason != account.ReasonTargetGone || !strings.Contains(a.Message, tc.wantMessage) {
				t.Errorf("exit code %d, account %+v", code, a)
			}
			if a.Gated == tc.none {
				t.Errorf("the account says gated: %v", a.Gated)
			}
			if opened := a.Gate == "c0ffee"; opened == (tc.none || tc.wantMessage != "") {
				t.Errorf("the account says that the gate of container %q was opened", a.Gate)
			}
			if stuck := b.gateStuck.Load() != nil; stuck != (tc.wantMessage != "") && name != "stuck for long" {
				t.Errorf("the message says that the gate is stuck: %t", stuck)
			}
			if got := calls.Load(); got < tc.wantCalls || tc.none && got > 0 {
				t.Errorf("%d attempts, want %d", got, tc.wantCalls)
			}
		})
	}
}

// awaitText waits until a file has a text.
func awaitText(t *testing.T, file, text string) {
	t.Helper()
	for {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), text) || t.Context().Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// After the end of a recording the gate stays closed: the Pod would start untraced.
func TestGateStaysClosedAfterTheEnd(t *testing.T) {
	b := newBench(t)
	b.options.Gate = true
	ended := make(chan struct{})
	b.awaitGate = func(ctx context.Context, _ string) (gate.Opened, error) {
		<-ctx.Done()
		close(ended)
		return gate.Opened{}, errors.Join(gate.ErrNoGate, ctx.Err())
	}
	b.act = func(_ *testing.T, b *bench, _ context.CancelFunc) { close(b.target.left) }
	if code, a := b.run(t); code != ExitComplete || a.Message != "" {
		t.Errorf("exit code %d, account %+v", code, a)
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the probe still searches for the gate")
	}
}
