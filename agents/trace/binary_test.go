package trace

import (
	"bytes"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/recording"
	"github.com/sonde-operator/sonde/agents/node/ring"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
	"github.com/sonde-operator/sonde/agents/trace/output"
)

// Binary records are written unchanged, complete and in order.
func TestBinary(t *testing.T) {
	t.Parallel()
	const n = 20_000
	pod := newTestPod(t)
	release := pod.startReads(t, n)
	events, reads, last := 0, 0, uint64(0)
	r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, Binary: true, Out: sinkFunc(func(records []byte, want int) (int, error) {
		took := 0
		for ; len(records) > 0; took++ {
			var e kernel.Record
			if !e.Parse(records) {
				t.Errorf("not a record: % x", records[:min(len(records), kernel.HeadLen)])
				return took, nil
			}
			if e.Head.Time < last {
				t.Errorf("record %d is earlier than the one before", events+took)
			}
			last = e.Head.Time
			if e.Head.Call == unix.SYS_READ && e.Numbers[2] == 1 && e.Head.Ret == 1 {
				reads++
			}
			records = records[len(e.Raw):]
		}
		if took != want {
			t.Errorf("%d records were called %d events", took, want)
		}
		events += took
		return took, nil
	})})
	release()
	r.cancel()
	<-r.done
	a := r.result.Account
	if r.result.Err != nil || a.Written != uint64(events) || a.Written != n+1 || a.Lost() != 0 || reads != n+1 {
		t.Errorf("%+v, %d records, %d of them reads of a byte; want %d", r.result, events, reads, n+1)
	}
}

// ringOf returns a ring with records of so many reads, one per nanosecond, which wrap around its end.
func ringOf(events int) kernel.Ring {
	const size = 1 << 20
	r := ring.InMemory(size, 1<<14, size-1<<10)
	for i := range events {
		one := kerneltest.Call(unix.SYS_READ, []uint64{uint64(i), 2, 3})
		kerneltest.Head(one).Time = uint64(i + 1)
		r.Put(one, 0)
	}
	return kernel.Ring{Ring: r}
}

// Each record is copied once, in order, up to a time and to the limit of events.
func TestCopyRun(t *testing.T) {
	const all = 2000 // more than fit into one write
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
			tr := newTrace(&Config{Binary: true, MaxEvents: tc.limit, Out: sinkFunc(func(records []byte, events int) (int, error) {
				got.Write(records)
				return events, nil
			})})
			r := ringOf(all)
			var e kernel.Record
			more, err := r.Next(&e)
			if more && err == nil {
				more, err = tr.copyRun(r, &e, tc.until)
			}
			tr.out.Flush()
			r.Free()
			if wantMore := tc.want < all; err != nil || more != wantMore {
				t.Errorf("%v, %v; want %v", more, err, wantMore)
			}
			tr.out.Close(0)
			if limited := tc.limit > 0 && tc.limit == tc.want; (tr.out.End() == recording.EventLimit) != limited || tr.out.Counts() != (output.Counts{Written: tc.want}) {
				t.Errorf("ended %q with %+v, want %d written", tr.out.End(), tr.out.Counts(), tc.want)
			}
			for i := range tc.want {
				if !e.Parse(got.Bytes()) || e.Head.Time != i+1 || e.Numbers[0] != i {
					t.Fatalf("record %d: %+v", i, e.Head)
				}
				got.Next(len(e.Raw))
			}
			if got.Len() > 0 {
				t.Errorf("%d bytes more", got.Len())
			}
		})
	}
}
