package htmlreport

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sonde-operator/sonde/internal/cli/traceview"
	"github.com/sonde-operator/sonde/internal/wire/table"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// A header may have 1 MiB. Only what the page shows of it stays in memory.
func TestHeadersAreShortened(t *testing.T) {
	long := strings.Repeat("x", 1000)
	short := table.Truncate(long, maxHeaderText)
	header := tracefmt.Header{
		Namespace: "shop", Target: long, JobID: long, Pod: "web-1", PodUID: long, Node: "n1", Groups: make([]string, 1000),
		Containers: []string{long}, Command: long, Missing: []string{long},
	}
	header.Groups[0] = "file"
	trace := NewTrace()
	if err := trace.Line(traceview.NewSource("web.ndjson", nil), &tracefmt.Line{Header: &header}); err != nil {
		t.Fatal(err)
	}
	groups := make([]string, maxGroups)
	groups[0] = "file"
	want := []*tracefmt.Header{{Namespace: "shop", Target: short, Pod: "web-1", Node: "n1", Groups: groups}}
	if diff := cmp.Diff(want, trace.headers); diff != "" || cap(trace.headers[0].Groups) > 2*maxGroups {
		t.Errorf("%d places for groups, headers (-want +got):\n%s", cap(trace.headers[0].Groups), diff)
	}
}
