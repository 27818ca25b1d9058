package recording

import (
	"testing"
	"time"
)

func TestUntilNext(t *testing.T) {
	for _, tc := range []struct{ since, d, want time.Duration }{
		{0, 200, 200}, {1, 200, 199}, {199, 200, 1}, {200, 200, 200}, {399, 200, 1}, {250, 400, 150},
	} {
		if got := untilNext(tc.since, tc.d); got != tc.want {
			t.Errorf("%d after the start, every %d: %d, want %d", tc.since, tc.d, got, tc.want)
		}
	}
	if got := UntilNext(time.Hour); got <= 0 || got > time.Hour {
		t.Errorf("%v until the next hour", got)
	}
}
