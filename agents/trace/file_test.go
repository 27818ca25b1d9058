package trace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/disk"
)

func TestFile(t *testing.T) {
	const line, last = "0123456\n", "the last one\n"
	plenty := func(string) (uint64, uint64, error) { return 1 << 30, 1 << 29, nil }
	for name, tc := range map[string]struct {
		most      int64
		floor     disk.Floor
		lines     int // that are asked for
		want      int // that are written
		wantError func(error) bool
	}{
		"no limit":         {lines: 100, want: 100},
		"just enough":      {most: 10*8 + 13, lines: 10, want: 10},
		"one byte too few": {most: 10*8 + 12, lines: 10, want: 9, wantError: isByteLimit},
		"nothing":          {most: 13, lines: 3, wantError: isByteLimit},
		"above the floor":  {floor: disk.Floor{Keep: func(uint64) uint64 { return 1 << 20 }, Space: plenty}, lines: 20000, want: 20000},
		"at the floor":     {floor: disk.Floor{Keep: func(uint64) uint64 { return 1 << 29 }, Space: plenty}, lines: 3, wantError: disk.IsFull},
		"the disk is silent": {
			floor: disk.Floor{Keep: func(uint64) uint64 { return 1 }, Space: func(string) (uint64, uint64, error) { return 0, 0, unix.EIO }},
			lines: 3, wantError: func(err error) bool { return errors.Is(err, unix.EIO) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.ndjson")
			w, err := CreateFile(&FileConfig{Path: path, Mode: 0o640, MaxBytes: tc.most, Spare: int64(len(last)), Floor: tc.floor})
			if err != nil {
				t.Fatal(err)
			}
			n, err := w.Write([]byte(strings.Repeat(line, tc.lines)), tc.lines)
			if n != tc.want || (err != nil) != (tc.wantError != nil) || err != nil && !tc.wantError(err) {
				t.Errorf("%d lines (%v), want %d", n, err, tc.want)
			}
			if err := w.Last([]byte(last)); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if want := strings.Repeat(line, tc.want) + last; err != nil || string(got) != want || tc.most > 0 && int64(len(got)) > tc.most {
				t.Errorf("%d bytes (%v), want %d", len(got), err, len(want))
			}
		})
	}
}

func isByteLimit(err error) bool { return errors.Is(err, errByteLimit) }

// A disk that is full in the middle of a line: the file ends with a whole one, and has its last.
func TestFileOnAFullDisk(t *testing.T) {
	newTestPod(t, testUID) // needs root
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	const line = "a line of some length, that no block's end is a multiple of\n"
	path := filepath.Join(dir, "t.ndjson")
	w, err := CreateFile(&FileConfig{Path: path, Mode: 0o640, Spare: 100, Header: []byte(line)})
	if err != nil {
		t.Fatal(err)
	}
	n, err := w.Write([]byte(strings.Repeat(line, 5000)), 5000)
	if !disk.IsFull(err) {
		t.Fatalf("%d lines, %v", n, err)
	}
	if err := w.Last([]byte("the last one\n")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if want := strings.Repeat(line, n+1) + "the last one\n"; err != nil || string(got) != want || n < 900 {
		t.Errorf("%d lines and %d bytes (%v), want %d bytes", n, len(got), err, len(want))
	}
	if _, err := CreateFile(&FileConfig{Path: path, Mode: 0o640, Spare: 100, Header: []byte(line)}); err == nil {
		t.Error("a result was overwritten")
	}
}

func TestWholeEvents(t *testing.T) {
	const lines = "a1\na2\nb1\nb2\nc1\nc2\n"
	for room, want := range map[int]int{0: 0, 5: 0, 6: 6, 11: 6, 12: 12, 17: 12, 18: 18, 100: 18} {
		if got := wholeEvents([]byte(lines), room, 2); string(got) != lines[:want] {
			t.Errorf("%d bytes hold %q, want %q", room, got, lines[:want])
		}
	}
	if n := eventLen([]byte(lines), 2); n != 6 {
		t.Errorf("the first event has %d bytes, want 6", n)
	}
}
