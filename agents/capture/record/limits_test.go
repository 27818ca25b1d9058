package record

import (
	"errors"
	"log/slog"
	"testing"
)

// A disk that cannot be asked is no reason to end a capture that runs.
func TestDiskThatDoesNotAnswer(t *testing.T) {
	r := New(&Config{DiskFloor: func(uint64) uint64 { return 1 }, MaxBytes: 1000}, slog.New(slog.DiscardHandler), CreateFile)
	r.files = []*file{{}}
	r.out = testOutput(t)
	r.space = func(string) (uint64, uint64, error) { return 0, 0, errors.New("no answer") }
	if left, tight := r.room(10); left.bytes != 1000 || tight != limitFile {
		t.Errorf("%d bytes, %d", left.bytes, tight)
	}
}
