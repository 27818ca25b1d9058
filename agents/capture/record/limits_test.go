package record

import (
	"errors"
	"log/slog"
	"testing"
)

// If the free disk space cannot be read, a running capture continues.
func TestDiskThatDoesNotAnswer(t *testing.T) {
	r := New(&Config{DiskFloor: func(uint64) uint64 { return 1 }, MaxBytes: 1000}, slog.New(slog.DiscardHandler), CreateFile)
	r.files = []*file{{}}
	r.out = testOutput(t)
	r.space = func(string) (uint64, uint64, error) { return 0, 0, errors.New("no answer") }
	if left, by := r.room(10); left.bytes != 1000 || by != limitFile {
		t.Errorf("%d bytes, %d", left.bytes, by)
	}
}
