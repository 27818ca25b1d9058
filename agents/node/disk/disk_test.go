package disk

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func keep(n uint64) func(uint64) uint64 { return func(uint64) uint64 { return n } }

func TestRoom(t *testing.T) {
	const mi = 1 << 20
	for name, tc := range map[string]struct {
		free, need, want uint64
	}{
		"far away":         {1000 * mi, 100, (1000*mi - 10*mi - Slack) / 32},
		"near":             {11*mi + Slack, 100, piece},
		"large":            {11*mi + Slack, 200000, 200000},
		"almost nothing":   {10*mi + Slack + 1000, 100, 1000},
		"large and little": {10*mi + Slack + 1000, 200000, 1000},
		"at the floor":     {10*mi + Slack, 100, 0},
		"below":            {5 * mi, 100, 0},
		"nothing":          {0, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := Floor{Keep: keep(10 * mi), Space: func(string) (uint64, uint64, error) { return 2000 * mi, tc.free, nil }}
			if got, err := f.Room(tc.need, 0); got != tc.want || err != nil {
				t.Errorf("%d bytes (%v), want %d", got, err, tc.want)
			}
			f.Space = func(string) (uint64, uint64, error) { return 2000 * mi, tc.free + 77, nil }
			if got, err := f.Room(tc.need, 77); got != tc.want || err != nil {
				t.Errorf("%d bytes (%v) with 77 spare bytes, want %d", got, err, tc.want)
			}
		})
	}
}

func TestRoomWithoutAFloor(t *testing.T) {
	for name, f := range map[string]Floor{
		"no floor":              {},
		"a disk without a size": {Keep: keep(10), Space: func(string) (uint64, uint64, error) { return 0, 0, nil }},
	} {
		if got, err := f.Room(1, 1); got != math.MaxUint64 || err != nil {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	none := Floor{Dir: "/nowhere", Keep: keep(1)}
	if _, err := none.Room(1, 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
	here := Floor{Dir: t.TempDir(), Keep: keep(1)}
	if got, err := here.Room(1, 1); err != nil || got == 0 {
		t.Errorf("%d, %v", got, err)
	}
}

func TestIsFull(t *testing.T) {
	f := Floor{Keep: keep(1 << 20), Space: func(string) (uint64, uint64, error) { return 1 << 20, 1 << 20, nil }}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"the floor": {f.FullError(0), true},
		"no space":  {fmt.Errorf("write: %w", unix.ENOSPC), true},
		"no quota":  {unix.EDQUOT, true},
		"broken":    {unix.EIO, false},
		"nothing":   {nil, false},
	} {
		if got := IsFull(tc.err); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFullErrorAdvice(t *testing.T) {
	const mi, less, lower = 1 << 20, "or capture less", "or ask a cluster admin for a lower --disk-floor"
	for name, tc := range map[string]struct {
		free, written         uint64
		wantAdvice, wantNever string
	}{
		"below the floor before the first byte": {5 * mi, 0, lower, less},
		"below it without what was written":     {5 * mi, 4 * mi, lower, less},
		"within the slack":                      {10*mi + Slack, 0, lower, less},
		"above it without what was written":     {10*mi + Slack, 100, less, lower},
	} {
		t.Run(name, func(t *testing.T) {
			f := Floor{Keep: keep(10 * mi), Space: func(string) (uint64, uint64, error) { return 2000 * mi, tc.free, nil }}
			got := f.FullError(tc.written).Error()
			if !strings.Contains(got, tc.wantAdvice) || strings.Contains(got, tc.wantNever) || !strings.Contains(got, "captures leave 10.0 MiB") {
				t.Errorf("%s", got)
			}
		})
	}
}
