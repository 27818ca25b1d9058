package results

import (
	"context"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

const (
	drainSettle = 3 * time.Second
	drainLimit  = 15 * time.Second
)

func TestDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		serving int
		leave   bool
		step    time.Duration
		wantEnd bool
	}{
		"nothing served, drainSettle time runs":   {step: drainSettle - 1},
		"nothing served, drainSettle time over":   {step: drainSettle, wantEnd: true},
		"still served":                            {serving: 1, step: drainLimit - 1},
		"served until the end":                    {serving: 1, step: drainSettle, leave: true, wantEnd: true},
		"one of two ended":                        {serving: 2, step: drainSettle, leave: true},
		"served for longer than one waits for it": {serving: 1, step: drainLimit, wantEnd: true},
	} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Now())
			d := NewDrain(drainSettle, drainLimit, clk)
			var leave func()
			for range tc.serving {
				leave = d.Enter()
			}
			signal, cancel := context.WithCancel(t.Context())
			ctx := d.Context(signal)
			if ctx.Err() != nil {
				t.Fatal("ended without a signal")
			}
			cancel()
			waiters(t, clk, 2)
			clk.Step(tc.step)
			if tc.leave {
				leave()
				leave() // a second time counts nothing
			}
			if !tc.wantEnd {
				select {
				case <-ctx.Done():
					t.Error("ended too early")
				case <-time.After(50 * time.Millisecond):
				}
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
				t.Error("does not end")
			}
		})
	}
}

// waiters waits until so many timers are set.
func waiters(t *testing.T, clk *testingclock.FakeClock, n int) {
	t.Helper()
	for clk.Waiters() < n {
		select {
		case <-t.Context().Done():
			t.Fatal("no timer")
		case <-time.After(time.Millisecond):
		}
	}
}
