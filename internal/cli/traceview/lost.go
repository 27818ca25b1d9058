package traceview

import (
	"fmt"
	"strings"

	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// lostTable counts the events that the tracers lost: by the place where they were lost, and by the name of the call or
// event where the tracer knew it.
type lostTable struct {
	places, calls map[string]uint64
}

func (t *lostTable) add(a *tracefmt.Account) {
	merge(t.places, a.Lost, maxGroups)
	merge(t.calls, a.LostCalls, maxCalls)
}

// merge adds counts to all, which holds at most limit names and counts the others under "other".
func merge(all, counts map[string]uint64, limit int) {
	for name, n := range counts {
		if n == 0 {
			continue
		}
		if _, known := all[name]; !known && len(all) >= limit || len(name) > maxWord {
			name = "other"
		}
		all[name] += n
	}
}

func total(counts map[string]uint64) uint64 {
	var n uint64
	for _, one := range counts {
		n += one
	}
	return n
}

func (t *lostTable) text(b *strings.Builder) {
	if len(t.calls) == 0 {
		return
	}
	b.WriteString("\nLost events, by call:\n")
	rows := [][]string{{"COUNT", "CALL"}}
	names := byCount(t.calls)
	for _, name := range names[:min(callRows, len(names))] {
		rows = append(rows, []string{number(t.calls[name]), name})
	}
	b.WriteString(table.Text("rl", rows))
	writeOmitted(b, len(names)-callRows, "name of a call", "names of calls", 0, "")
	if all, known := total(t.places), total(t.calls); all > known {
		fmt.Fprintf(b, "… and %d whose call is unknown\n", all-known)
	}
}
