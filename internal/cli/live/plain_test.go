package live

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"
)

func TestPlain(t *testing.T) {
	var out bytes.Buffer
	clock := testingclock.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	p := NewPlain(&out, clock)
	step := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	v := View{Title: "shop/web", Status: "Starting", Pods: []Pod{{Name: "web-1", Node: "n1", State: "Pending"}}}
	p.Show(v) // status and Pod
	p.Show(v) // nothing new
	step(time.Second)
	v.Status, v.Notes = "Capturing", []string{"Live counts are not available: x"}
	v.Pods = []Pod{{Name: "web-1", Node: "n1", State: "Capturing", Count: 7, Bytes: 2048}}
	p.Show(v) // status and note; too early for the Pod
	step(time.Second)
	p.Show(v) // now
	p.PrintLine("Stopping")
	step(500 * time.Millisecond)
	v.Pods = []Pod{{Name: "web-1", Node: "n1", State: "Completed", Count: 8, Bytes: 4096, Lost: 1}}
	p.Show(v)
	p.Close() // the delayed changes
	v.Unit, v.Pods[0].Count = Events, 1
	p.Show(v)
	p.Close()

	want := `2026-03-01T12:00:00Z shop/web: Starting
2026-03-01T12:00:00Z web-1 on n1: Pending, 0 packets, 0 B, 0 dropped
2026-03-01T12:00:01Z shop/web: Capturing
2026-03-01T12:00:01Z Live counts are not available: x
2026-03-01T12:00:02Z web-1 on n1: Capturing, 7 packets, 2.0 KiB, 0 dropped
2026-03-01T12:00:02Z Stopping
2026-03-01T12:00:02Z web-1 on n1: Completed, 8 packets, 4.0 KiB, 1 dropped
2026-03-01T12:00:02Z web-1 on n1: Completed, 1 event, 4.0 KiB, 1 lost
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
