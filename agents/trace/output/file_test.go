package output

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/test/privileged"
)

func TestFile(t *testing.T) {
	const line, last = "0123456\n", "the last one\n"
	plenty := func(string) (uint64, uint64, error) { return 1 << 30, 1 << 29, nil }
	for name, tc := range map[string]struct {
		most      int64
		floor     disk.Floor
		lines     int // requested
		want      int // written
		wantError func(error) bool
	}{
		"no limit":         {lines: 100, want: 100},
		"just enough":      {most: 10*8 + 13, lines: 10, want: 10},
		"one byte too few": {most: 10*8 + 12, lines: 10, want: 9, wantError: isByteLimit},
		"nothing":          {most: 13, lines: 3, wantError: isByteLimit},
		"above the floor":  {floor: disk.Floor{Keep: func(uint64) uint64 { return 1 << 20 }, Space: plenty}, lines: 20000, want: 20000},
		"at the floor":     {floor: disk.Floor{Keep: func(uint64) uint64 { return 1 << 29 }, Space: plenty}, lines: 3, wantError: disk.IsFull},
		"unknown free space": {
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

// A disk becomes full in the middle of a line, which was taken now or long before. The file ends with a complete event
// and its last line, and missing events are counted.
func TestFileOnAFullDisk(t *testing.T) {
	privileged.Need(t)
	for name, dir := range map[string]string{"small": mount(t, "size=64k"), "larger than the buffer": mount(t, "size=7m")} {
		for _, tc := range []struct{ each, events, at int }{{1, 1, 1}, {1, 40_000, 40_000}, {2, 30, 1}, {3, 30_000, 1000}} {
			t.Run(fmt.Sprintf("%s, %d lines each, %d at a time", name, tc.each, tc.at), func(t *testing.T) {
				const line, last = "a line of some length, that no block's end is a multiple of\n", "the last one\n"
				path := filepath.Join(dir, "t.ndjson")
				defer os.Remove(path)
				config := &FileConfig{Path: path, Mode: 0o640, Spare: 100, Header: []byte("the header\n")}
				w, err := CreateFile(config)
				if err != nil {
					t.Fatal(err)
				}
				taken, event := 0, strings.Repeat(line, tc.each)
				for err == nil {
					var n int
					n, err = w.Write([]byte(strings.Repeat(event, tc.events)), tc.events)
					if taken += n; err == nil && taken%tc.at == 0 {
						err = w.Flush(taken%2 == 0)
					}
				}
				if !disk.IsFull(err) || !disk.IsFull(w.Flush(true)) {
					t.Fatalf("%d events, %v, %v", taken, err, w.Flush(true))
				}
				if n, err := w.Write([]byte(event), 1); n != 0 || !disk.IsFull(err) {
					t.Errorf("%d events more were taken, %v", n, err)
				}
				kept := taken - int(w.Pending())
				if err := w.Last([]byte(last)); err != nil {
					t.Fatal(err)
				}
				want := "the header\n" + strings.Repeat(event, max(kept, 0)) + last
				got, err := os.ReadFile(path)
				if err != nil || string(got) != want || int64(len(want)) != w.Size() {
					t.Errorf("%d of %d events and %d bytes (%v), want %d bytes", kept, taken, len(got), err, len(want))
				}
				if _, free, err := disk.Space(dir); err != nil || int(free) > len(event)+2*4096 {
					t.Errorf("%d bytes are free (%v)", free, err)
				}
				if _, err := CreateFile(config); err == nil {
					t.Error("a result was overwritten")
				}
			})
		}
	}
}

// A disk without room for the header has no file.
func TestFileWithoutRoomForItsHeader(t *testing.T) {
	privileged.Need(t)
	dir := mount(t, "size=4k")
	_, err := CreateFile(&FileConfig{Path: filepath.Join(dir, "t.ndjson"), Mode: 0o640, Header: bytes.Repeat([]byte("x"), 5000)})
	if !disk.IsFull(err) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// mount mounts a tmpfs and returns its folder.
func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Near the floor at most one write is pending, because other writers do not see pending bytes. All lines that fit are
// written.
func TestFileNearTheFloor(t *testing.T) {
	const line, free, piece = "0123456\n", 100_000, 64 << 10
	path := filepath.Join(t.TempDir(), "t.ndjson")
	taken, first := 0, int64(0)
	floor := disk.Floor{
		Keep: func(uint64) uint64 { return 0 },
		Space: func(string) (uint64, uint64, error) {
			info, err := os.Stat(path)
			if err != nil {
				return 0, 0, err
			}
			if waits := taken*len(line) - int(info.Size()); waits > piece {
				t.Errorf("%d bytes are pending", waits)
			}
			if first == 0 {
				first = info.Size()
			}
			return 1 << 30, disk.Slack + free - uint64(info.Size()), nil
		},
	}
	w, err := CreateFile(&FileConfig{Path: path, Mode: 0o640, Floor: floor})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		var n int
		n, err = w.Write([]byte(line), 1)
		taken += n
	}
	if want := free / len(line); !disk.IsFull(err) || taken != want || first != piece {
		t.Errorf("%d lines (%v), the first %d bytes together; want %d lines", taken, err, first, want)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLastWhole(t *testing.T) {
	const lines = "a1\na2\na3\nb1\nb2\nb3\n"
	for place, want := range map[int]int{0: 0, 8: 0, 9: 9, 17: 9, 18: 18} {
		if got := lastWhole([]byte(lines), place, 3); got != want {
			t.Errorf("up to %d it ends at %d, want %d", place, got, want)
		}
		// Read from the middle of an event on.
		if got := lastWhole([]byte("3\n"+lines), place+2, 3); got != want+2 {
			t.Errorf("up to %d it ends at %d, want %d", place+2, got, want+2)
		}
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
