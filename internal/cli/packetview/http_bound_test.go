package packetview

import (
	"runtime"
	"strconv"
	"testing"
	"time"
)

// A file that was made for it has the most paths and names, each with the most durations and statuses.
func TestTablesAreBounded(t *testing.T) {
	all, names := newHTTP(), make([]Durations, maxNames)
	before := heapInUse()
	for i := range maxRoutes {
		r := all.route(&head{method: "GET", host: "web", path: "/" + strconv.Itoa(i)})
		for j := range maxExact + 1 {
			r.Took.add(time.Duration(j))
			names[i%maxNames].add(time.Duration(j))
		}
		for status := 100; status < 1000; status++ {
			r.count(status)
		}
		if n := len(r.Statuses); n > maxStatuses+9 {
			t.Fatalf("%d statuses of a path", n)
		}
	}
	if took := heapInUse() - before; took > 160<<20 {
		t.Errorf("%d MiB", took>>20)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(names)
}

func TestStatusesOfARoute(t *testing.T) {
	r := &Route{Statuses: map[int]uint64{}}
	for status := 200; status < 200+maxStatuses; status++ {
		r.count(status)
	}
	for range 3 {
		r.count(404)
		r.count(503)
	}
	r.count(200)
	if r.Statuses[200] != 2 || r.Statuses[400] != 3 || r.Statuses[500] != 3 || r.Failed() != 6 {
		t.Errorf("%v", r.Statuses)
	}
}
