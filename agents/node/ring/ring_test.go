package ring

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/sonde-operator/sonde/test/privileged"
)

func TestSize(t *testing.T) {
	cases := map[string]struct{ total, cpus, want int }{
		"two":       {32 << 20, 2, 16 << 20},
		"not whole": {32 << 20, 3, 8 << 20},
		"many":      {32 << 20, 512, 128 << 10},
		"none":      {32 << 20, 0, 32 << 20},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Size(tc.total, tc.cpus, 128<<10); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

// record returns a record of size bytes that has its size and number.
func record(number uint64, size int) []byte {
	b := make([]byte, size)
	binary.LittleEndian.PutUint32(b, uint32(size))
	for i := 8; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], number)
	}
	return b
}

// Every written record is read once, complete and in order, across the end of the ring many times. Lost records are counted.
func TestEachRecordIsReadOnceOrCounted(t *testing.T) {
	const size, longest, kind = 4096, 1024, 7
	r := InMemory(size, longest, 1<<40-100*8)
	random := rand.New(rand.NewPCG(1, 2))
	var put, read, lost uint64
	written := map[uint64]int{}
	for put < 50_000 {
		for range random.IntN(20) {
			n := 16 + 8*random.IntN((longest-16)/8+1)
			if r.Put(record(put, n), kind) {
				written[put] = n
			} else {
				lost++
			}
			put++
		}
		last := uint64(0)
		for range random.IntN(20) {
			if !r.Ready() {
				break
			}
			b, left := r.Rest(), r.Left()
			n := int(binary.LittleEndian.Uint32(b))
			number := binary.LittleEndian.Uint64(b[8:])
			if written[number] != n || number < last || left == 0 || binary.LittleEndian.Uint64(b[n-8:]) != number {
				t.Fatalf("record %d of %d bytes after %d, %d left; written with %d", number, n, last, left, written[number])
			}
			delete(written, number)
			last = number
			read++
			r.Skip(uint64(n))
			r.FreeLarge()
		}
		r.Free()
	}
	if left := uint64(len(written)); read+left+lost != put || r.Lost() != lost || r.LostOf(kind) != lost || r.LostOf(kind+1) != 0 || lost == 0 {
		t.Errorf("%d put, %d read, %d left, %d lost; the ring counts %d", put, read, left, lost, r.Lost())
	}
}

func TestFillAndCounter(t *testing.T) {
	r := InMemory(1024, 64, 0)
	if r.Ready() || r.Fill() != 0 || r.Counter() != 0 {
		t.Errorf("an empty ring is ready, full to %v, and counts %d", r.Fill(), r.Counter())
	}
	for range 4 {
		r.Put(record(1, 64), 0)
	}
	if !r.Ready() || r.Fill() != 0.25 || r.Left() != 256 {
		t.Errorf("full to %v, %d left", r.Fill(), r.Left())
	}
}

func TestMapOfTheShape(t *testing.T) {
	privileged.Need(t)
	const cpus, size, longest = 3, 128 << 10, 5000
	spec := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, Flags: 1 << 10} // BPF_F_MMAPABLE
	Shape(spec, cpus, size, longest)
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rings, err := Map(m, cpus, size, longest)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rings {
		if !r.Put(record(uint64(i), longest&^7), 0) || !r.Ready() || r.Lost() != 0 {
			t.Errorf("ring %d takes no record", i)
		}
	}
	value := make([]byte, spec.ValueSize)
	if err := m.Lookup(uint32(2), &value); err != nil || binary.LittleEndian.Uint64(value) != longest&^7 {
		t.Errorf("the map says %d, %v", binary.LittleEndian.Uint64(value), err)
	}
	for range 2 { // it may be called again
		if err := Unmap(rings); err != nil {
			t.Error(err)
		}
	}
	if err := Unmap(nil); err != nil {
		t.Error(err)
	}
}

// A reader does not sleep if its ring has filled meanwhile, and programs wake it only once in each sleep.
func TestBeforeSleep(t *testing.T) {
	r := InMemory(4096, 1024, 0)
	rings := []*Ring{InMemory(4096, 1024, 0), r}
	if got := BeforeSleep(rings, 0, false); got != 0 {
		t.Errorf("%v instead of no sleep", got)
	}
	r.asked.Store(1)
	r.Put(record(1, 256), 0)
	if got := BeforeSleep(rings, MaxInterval, false); got != MaxInterval || r.asked.Load() != 0 || r.threshold.Load() != 512 {
		t.Errorf("%v, asked %d", got, r.asked.Load())
	}
	r.Put(record(2, 512), 0)
	if got := BeforeSleep(rings, MaxInterval, false); got != 0 {
		t.Errorf("%v with a ring that is full to %v", got, r.Fill())
	}
}

// A quiet reader sleeps for long, and the first record wakes it.
func TestBeforeSleepInQuiet(t *testing.T) {
	r := InMemory(4096, 1024, 0)
	rings := []*Ring{r}
	if got := BeforeSleep(rings, MaxInterval, true); got != QuietInterval || r.threshold.Load() != 0 {
		t.Errorf("%v, threshold %d in quiet", got, r.threshold.Load())
	}
	r.Put(record(1, 16), 0)
	if got := BeforeSleep(rings, MaxInterval, true); got != 0 {
		t.Errorf("%v after a new record", got)
	}
	if got := BeforeSleep(rings, MaxInterval, false); got != MaxInterval || r.threshold.Load() != 512 {
		t.Errorf("%v, threshold %d with a record", got, r.threshold.Load())
	}
}

func TestEarliest(t *testing.T) {
	cases := map[string]struct {
		times      []uint64
		wantFirst  int
		wantOthers uint64
	}{
		"none":            {nil, -1, 100},
		"no records":      {[]uint64{0, 0}, -1, 100},
		"later":           {[]uint64{101, 0}, -1, 100},
		"one":             {[]uint64{0, 7, 0}, 1, 100},
		"just now":        {[]uint64{100, 101}, 0, 100},
		"in order":        {[]uint64{5, 6, 7}, 0, 6},
		"reversed":        {[]uint64{7, 6, 5}, 2, 6},
		"at once":         {[]uint64{5, 5}, 0, 5},
		"first in middle": {[]uint64{9, 3, 0, 8}, 1, 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if first, others := Earliest(tc.times, 100); first != tc.wantFirst || others != tc.wantOthers {
				t.Errorf("%d until %d, want %d until %d", first, others, tc.wantFirst, tc.wantOthers)
			}
		})
	}
}
