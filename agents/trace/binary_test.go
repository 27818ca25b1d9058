package trace

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Records are handed on as they are, whole and in their order.
func TestBinary(t *testing.T) {
	const n = 20_000
	pod := newTestPod(t, testUID)
	let := pod.startReads(t, n)
	events, reads, last := 0, 0, uint64(0)
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupIO}, Binary: true, Out: sinkFunc(func(records []byte, _ int) (int, error) {
		took := 0
		for ; len(records) > 0; took++ {
			var e event
			if !e.parse(records) {
				t.Errorf("no record: % x", records[:min(len(records), recordLen)])
				return took, nil
			}
			if e.record.Time < last {
				t.Errorf("record %d is earlier than the one before", events+took)
			}
			last = e.record.Time
			if e.record.Call == unix.SYS_READ && e.numbers[2] == 1 && e.record.Ret == 1 {
				reads++
			}
			records = records[len(e.whole):]
		}
		events += took
		return took, nil
	})})
	let()
	r.cancel()
	<-r.done
	a := r.result.Account
	if r.result.Err != nil || a.Written != uint64(events) || a.Written != n+1 || a.Lost() != 0 || reads != n+1 {
		t.Errorf("%+v, %d records, %d of them reads of a byte; want %d", r.result, events, reads, n+1)
	}
}
