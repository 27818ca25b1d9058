package host

import (
	"testing"

	"github.com/sonde-operator/sonde/test/bench/figures"
)

// Memory that maps and rings take is counted once, however much of it a process is charged with.
func TestMemoryOf(t *testing.T) {
	const (
		status  = "Name:\tagent\nVmHWM:\t  50000 kB\n"
		heap    = "c000000000-c000400000 rw-p 00000000 00:00 0\nSize:  4096 kB\nRss:  4000 kB\n"
		sockets = "7f00-7f01 rw-s 00000000 00:08 12 socket:[12]\nSize:  32768 kB\nRss:  32768 kB\n"
		bpf     = "7f02-7f03 rw-s 00000000 00:0f 9 anon_inode:bpf-map\nSize:  8192 kB\nRss:  100 kB\n"
		perf    = "7f04-7f05 rw-s 00000000 00:0f 9 anon_inode:[perf_event]\nSize:  512 kB\nRss:  20 kB\n"
	)
	for name, tc := range map[string]struct {
		smaps string
		maps  int64
		want  figures.Memory
	}{
		"nothing of it":  {heap, 0, figures.Memory{Peak: 50000 << 10}},
		"packet sockets": {heap + sockets, 0, figures.Memory{Peak: 50000 << 10, Ring: 32768 << 10}},
		"maps":           {heap + bpf, 9000 << 10, figures.Memory{Peak: 58900 << 10, Ring: 9000 << 10}},
		"maps unmapped":  {heap, 9000 << 10, figures.Memory{Peak: 59000 << 10, Ring: 9000 << 10}},
		"rings of perf":  {perf + heap, 0, figures.Memory{Peak: 50492 << 10, Ring: 512 << 10}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := memoryOf([]byte(status), []byte(tc.smaps), tc.maps); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}
