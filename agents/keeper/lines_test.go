package keeper

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/sonde-operator/sonde/internal/wire/account"
)

func TestWholeLines(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for name, tc := range map[string]struct {
		file        string
		known, want int64
	}{
		"nothing":          {"", 0, 0},
		"whole":            {"a\nb\n", 0, 4},
		"cut":              {"a\nbc", 0, 2},
		"no line":          {"abc", 0, 0},
		"known":            {"a\nbc", 2, 2},
		"known, and more":  {"a\nb\nc", 2, 4},
		"a long line":      {"a\n" + long + "\nb", 0, int64(len(long)) + 3},
		"a long half line": {"a\n" + long, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lastLineEnd(strings.NewReader(tc.file), tc.known, int64(len(tc.file))); got != tc.want {
				t.Errorf("%d bytes are whole lines, want %d", got, tc.want)
			}
			lines, size, err := countLines(strings.NewReader(tc.file), metaPrefix)
			if want := int64(strings.Count(tc.file, "\n")); err != nil || lines != want || size != tc.want {
				t.Errorf("%d lines in %d bytes (%v), want %d in %d", lines, size, err, want, tc.want)
			}
		})
	}
}

// After a tracer is killed, the recounted account has the events in its files, and complete lines are served.
func TestRecountOfAKilledTracer(t *testing.T) {
	k := run(t, clock.RealClock{})
	write(t, filepath.Join(k.results, "web.ndjson"), `{"sonde":"trace"}`+"\n{1}\n{2}\n"+`{"sonde":"account"}`+"\n{3")
	write(t, filepath.Join(k.results, "web-trace_io_0.log"), "EN\nEX\nEN\nEX\nEN")
	got, err := k.client.Recount(t.Context(), k.addr)
	if err != nil {
		t.Fatal(err)
	}
	want := []account.File{{Name: "web-trace_io_0.log", Bytes: 12}, {Name: "web.ndjson", Bytes: 46}}
	if got.Events != 4 || got.Seen != 4 || !got.AddsUp() || len(got.Files) != 2 || got.Files[0] != want[0] || got.Files[1] != want[1] {
		t.Errorf("account %+v, want 4 events in %+v", got, want)
	}
}
