package decode

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
)

// The kernel has not measured a call that seccomp answers: a process of the Pod has chosen its result. So no descriptor has its path, and
// that is counted. A server waits in accept when the trace begins, which looks the same.
func TestCallThatSeccompAnswers(t *testing.T) {
	cwd := int32(unix.AT_FDCWD)
	at := uint64(uint32(cwd))
	for name, tc := range map[string]struct {
		call     uint16
		path     string
		ret      int64
		numbers  []uint64
		relative bool // whether the working directory is asked for, and not a descriptor
		want     string
		wantLost uint64
	}{
		"openat":                    {call: unix.SYS_OPENAT, path: "/etc/shop", ret: 3, numbers: []uint64{at}, want: "/etc/shop", wantLost: 1},
		"dup3":                      {call: unix.SYS_DUP3, ret: 3, numbers: []uint64{4, 3}, want: "/four", wantLost: 1},
		"fcntl":                     {call: unix.SYS_FCNTL, ret: 3, numbers: []uint64{4, unix.F_DUPFD}, want: "/four", wantLost: 1},
		"chdir":                     {call: unix.SYS_CHDIR, path: "/etc", relative: true, want: "/etc/x", wantLost: 1},
		"connect":                   {call: unix.SYS_CONNECT, ret: -int64(unix.EINPROGRESS), numbers: []uint64{3}, want: "tcp", wantLost: 1},
		"accept":                    {call: unix.SYS_ACCEPT4, ret: 3, numbers: []uint64{5}, want: "tcp"},
		"a call that fails":         {call: unix.SYS_OPENAT, path: "/etc/shop", ret: -2, numbers: []uint64{at}, want: "/three"},
		"a call that names no file": {call: unix.SYS_FSTAT, numbers: []uint64{3}, want: "/three"},
		"a lock":                    {call: unix.SYS_FCNTL, numbers: []uint64{3, unix.F_SETLKW}, want: "/three"},
	} {
		for _, measured := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				d := New(Config{Node: process.Finder{Root: t.TempDir()}, Calls: Calls([]Group{GroupFile, GroupIO, GroupNetwork}), TracksFiles: true, Timed: true})
				call := func(number uint16, path string, ret int64, took uint64, numbers ...uint64) string {
					e := kernel.Record{Head: &kernel.Head{Kind: uint8(kernel.KindCall), Call: number, Pid: 1, Cgroup: 1, Ret: ret, Duration: took}, First: []byte(path)}
					if path != "" {
						e.Head.First = uint16(len(path) + 1)
					}
					copy(e.Numbers[:], numbers)
					return string(d.Decode(&e).Path)
				}
				call(unix.SYS_OPENAT, "/three", 3, 1, at)
				call(unix.SYS_OPENAT, "/four", 4, 1, at)
				call(unix.SYS_SOCKET, "", 5, 1, unix.AF_INET, unix.SOCK_STREAM)
				call(unix.SYS_CHDIR, "/home", 0, 1)
				if tc.call == unix.SYS_CONNECT {
					call(unix.SYS_SOCKET, "", 3, 1, unix.AF_INET, unix.SOCK_STREAM)
				}
				took, want, wantLost := uint64(1), tc.want, uint64(0)
				if !measured {
					if took, wantLost = 0, tc.wantLost; wantLost > 0 {
						want = ""
					}
				}
				call(tc.call, tc.path, tc.ret, took, tc.numbers...)
				var got string
				if tc.relative {
					got = call(uint16(fstatat), "x", 0, 1, at)
				} else {
					got = call(unix.SYS_READ, "", 1, 1, 3)
				}
				if lost := d.Unnamed(); got != want || lost != wantLost {
					t.Errorf("measured: %t: later the path is %q, and %d names are missing; want %q and %d", measured, got, lost, want, wantLost)
				}
			})
		}
	}
}
