package output

import (
	"testing"

	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// sink counts what it takes.
type sink struct{ bytes, events int }

func (s *sink) Write(lines []byte, events int) (int, error) {
	s.bytes, s.events = s.bytes+len(lines), s.events+events
	return events, nil
}

func (*sink) Flush(bool) error { return nil }
func (*sink) Pending() uint64  { return 0 }

// An event counts as written only if it has a line.
func TestEventsHaveLines(t *testing.T) {
	var to sink
	w := NewWriter(Config{Format: Flap, Sinks: map[string]Sink{"io": &to}})
	for _, event := range []tracefmt.Record{
		{Call: "io_uring_unlinkat", Took: -1}, // without a result
		{Call: "read", HasRet: true, Took: 5},
		{Call: "exec", Took: -1}, // FLAP has no such lines
	} {
		w.Write(w.Stream("io"), nil, &event, 9)
	}
	w.WriteLines(w.Stream("io"), nil)
	w.Flush()
	if got := w.Counts(); got != (Counts{Written: 2, Lost: 2}) || to.events != 2 {
		t.Errorf("%+v; the sink has %d events in %d bytes", got, to.events, to.bytes)
	}
}
