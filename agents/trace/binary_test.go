package trace

import (
	"bytes"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
)

// Records are handed on as they are, whole and in their order.
func TestBinary(t *testing.T) {
	const n = 20_000
	pod := newTestPod(t, testUID)
	let := pod.startReads(t, n)
	events, reads, last := 0, 0, uint64(0)
	r := start(t, &Config{PodUID: testUID, Groups: []Group{GroupIO}, Binary: true, Out: sinkFunc(func(records []byte, told int) (int, error) {
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
		if took != told {
			t.Errorf("%d records were called %d events", took, told)
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

// ringOf is a ring that so many reads lie in, one each nanosecond, and whose end some of them lie before.
func ringOf(events int) cpuRing {
	const size = 1 << 20
	r := ring.InMemory(size, maxRecord, size-1<<10)
	for i := range events {
		one := made(unix.SYS_READ, []uint64{uint64(i), 2, 3})
		headOf(one).Time = uint64(i + 1)
		r.Put(one, 0)
	}
	return cpuRing{r}
}

// Each record is handed on once, in its order, up to a time, and to the limit of events.
func TestHandOn(t *testing.T) {
	const all = 2000 // more than fit into what is handed on at a time
	for name, tc := range map[string]struct{ until, limit, want uint64 }{
		"all":              {math.MaxUint64, 0, all},
		"a few":            {5, 0, 5},
		"some":             {1500, 0, 1500},
		"none":             {0, 0, 0},
		"a limit":          {math.MaxUint64, 1234, 1234},
		"a limit beyond":   {math.MaxUint64, all + 1, all},
		"a limit at once":  {math.MaxUint64, 1, 1},
		"a limit and time": {1000, 1234, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			tr := &Trace{cfg: Config{Binary: true, MaxEvents: tc.limit}}
			tr.json = &stream{out: sinkFunc(func(records []byte, events int) (int, error) {
				got.Write(records)
				return events, nil
			})}
			tr.streams = map[string]*stream{"": tr.json}
			r := ringOf(all)
			var e event
			there, err := r.next(&e)
			if there && err == nil {
				there, err = tr.handOn(r, &e, tc.until)
			}
			tr.flushAll()
			r.Free()
			if wantThere := tc.want < all; err != nil || there != wantThere {
				t.Errorf("%v, %v; want %v", there, err, wantThere)
			}
			if limited := tc.limit > 0 && tc.limit == tc.want; (tr.end == recording.EventLimit) != limited || tr.account.Written != tc.want || tr.pending != 0 {
				t.Errorf("ended %q with %d written and %d pending, want %d", tr.end, tr.account.Written, tr.pending, tc.want)
			}
			for i := range tc.want {
				if !e.parse(got.Bytes()) || e.record.Time != i+1 || e.numbers[0] != i {
					t.Fatalf("record %d: %+v", i, e.record)
				}
				got.Next(len(e.whole))
			}
			if got.Len() > 0 {
				t.Errorf("%d bytes more", got.Len())
			}
		})
	}
}
