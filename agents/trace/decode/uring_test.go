package decode

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/node/process"
	"github.com/sonde-operator/sonde/agents/trace/kernel"
	"github.com/sonde-operator/sonde/agents/trace/kernel/kerneltest"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

// Numbers of operations (enum io_uring_op).
const (
	opPollAdd, opAccept, opConnect, opOpenat, opClose, opRead = 6, 13, 16, 18, 19, 22
)

// decodeAll decodes records one nanosecond after the other, of process 7 if they name none, and returns the events.
func decodeAll(t *testing.T, d *Decoder, records ...[]byte) []string {
	t.Helper()
	var all []string
	for i, b := range records {
		head := kerneltest.Head(b)
		if head.Pid == 0 {
			head.Pid = 7
		}
		head.Time, head.Tid, head.InnerPid, head.InnerTid = uint64(i+1), head.Pid, 1, 1
		var e kernel.Record
		if !e.Parse(b) {
			t.Fatalf("record %d is malformed", i)
		}
		if r := d.Decode(&e); r != nil {
			all = append(all, textOf(t, r))
		}
	}
	return all
}

// textOf formats an event without its time and its thread.
func textOf(t *testing.T, r *tracefmt.Record) string {
	t.Helper()
	var e tracefmt.Encoder
	text := string(e.Append(nil, r))
	if _, err := tracefmt.NewReader(strings.NewReader(text)).Next(); err != nil {
		t.Errorf("the plugin cannot read %s: %v", text, err)
	}
	_, text, _ = strings.Cut(text, "Z\",")
	call, rest, _ := strings.Cut(text, ",\"pid\":")
	_, rest, _ = strings.Cut(rest, `"comm":""`)
	return call + strings.TrimSuffix(rest, "}\n")
}

// decoderOf returns a decoder of the groups for tests.
func decoderOf(minLatency time.Duration, groups ...Group) *Decoder {
	return New(Config{Node: process.Finder{Root: "/nowhere"}, Calls: Calls(groups), TracksFiles: true, Timed: true, MinLatency: minLatency})
}

// ofProcess returns the record as another process's.
func ofProcess(pid uint32, record []byte) []byte {
	b := append([]byte(nil), record...)
	kerneltest.Head(b).Pid = pid
	return b
}

// opened returns the submission of an openat with user data 5.
func opened(request uint64, path string) []byte {
	return kerneltest.Submission(request, &kerneltest.Entry{Opcode: opOpenat, FD: unix.AT_FDCWD, UserData: 5}, nil, path)
}

// Each operation has one event, when it ends, with the arguments of its submission.
func TestOperationsOfARing(t *testing.T) {
	open := kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opOpenat, FD: unix.AT_FDCWD, OpFlags: unix.O_RDWR, Len: 0o600, UserData: 5}, nil, "/etc/shop")
	read := &kerneltest.Entry{Opcode: opRead, FD: 3, Addr: 0x7000, Len: 99, Off: 0xffffffffffffffff, UserData: 6}
	silent := kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opOpenat, Flags: 0x40, FD: unix.AT_FDCWD, UserData: 5}, nil, "/etc/shop")
	const silently = `"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x0","mode":"0x0","sqeFlags":"0x40","userData":"0x5"},"path":"/etc/shop"`
	acceptMore := kerneltest.Submission(0xc, &kerneltest.Entry{Opcode: opAccept, FD: 4, UserData: 5}, nil)
	address := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	address = append(address, 0, 80, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	for name, tc := range map[string]struct {
		records [][]byte
		want    []string
	}{
		"the descriptor of an open file has its path": {
			[][]byte{open, kerneltest.Submission(0xb, read, nil), kerneltest.Result(0xa, opOpenat, 5, 3, 0), kerneltest.Result(0xb, opRead, 6, 42, 0)},
			[]string{
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x2","mode":"0x180","userData":"0x5"},"ret":3,"latencyNs":2,"path":"/etc/shop"`,
				`"call":"io_uring_read","group":"io","args":{"fd":3,"buf":"0x7000","count":99,"offset":-1,"userData":"0x6"},"ret":42,"latencyNs":2,"path":"/etc/shop"`,
			},
		},
		"submitted before the trace, or its record was lost": {
			[][]byte{kerneltest.Result(0xa, opOpenat, 5, -2, 0)},
			[]string{`"call":"io_uring_openat","group":"file","args":{"userData":"0x5"},"ret":-1,"errno":"ENOENT"`},
		},
		"a registered file has no name": {
			[][]byte{open, kerneltest.Result(0xa, opOpenat, 5, 3, 0), kerneltest.Submission(0xb, &kerneltest.Entry{Opcode: opRead, Flags: 1, FD: 3}, nil), kerneltest.Result(0xb, opRead, 0, 1, 0)},
			[]string{
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x2","mode":"0x180","userData":"0x5"},"ret":3,"latencyNs":1,"path":"/etc/shop"`,
				`"call":"io_uring_read","group":"io","args":{"fd":3,"buf":"0x0","count":0,"offset":0,"fixed":true,"sqeFlags":"0x1","userData":"0x0"},"ret":1,"latencyNs":1`,
			},
		},
		"a close of a registered file keeps the descriptor of that number": {
			[][]byte{
				open, kerneltest.Result(0xa, opOpenat, 5, 0, 0), kerneltest.Submission(0xb, &kerneltest.Entry{Opcode: opClose, FileIndex: 1}, nil),
				kerneltest.Result(0xb, opClose, 0, 0, 0), kerneltest.Call(unix.SYS_FSYNC, []uint64{0}),
			},
			[]string{
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x2","mode":"0x180","userData":"0x5"},"ret":0,"latencyNs":1,"path":"/etc/shop"`,
				`"call":"io_uring_close","group":"file","args":{"fd":0,"fixed":true,"userData":"0x0"},"ret":0,"latencyNs":1`,
				`"call":"fsync","group":"file","args":{"fd":0},"ret":0,"path":"/etc/shop"`,
			},
		},
		"no result of a success": {
			[][]byte{kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opOpenat, Flags: 0x40, FD: unix.AT_FDCWD}, nil, "/etc/shop"), open},
			[]string{`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x0","mode":"0x0","sqeFlags":"0x40","userData":"0x0"},"path":"/etc/shop"`},
		},
		"a connection": {
			[][]byte{kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opConnect, FD: 4, Addr: 1, Off: 16}, address), kerneltest.Result(0xa, opConnect, 0, 0, 0)},
			[]string{`"call":"io_uring_connect","group":"network","args":{"sockfd":4,"addr":"10.0.0.1:80","addrlen":16,"userData":"0x0"},"ret":0,"latencyNs":1,"path":"socket:10.0.0.1:80"`},
		},
		"several results": {
			[][]byte{
				kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opAccept, FD: 4, UserData: 9}, nil), kerneltest.Result(0, 0, 9, 5, 2),
				kerneltest.Result(0, 0, 9, 6, 2), kerneltest.Result(0xa, opAccept, 9, -125, 0),
			},
			[]string{
				`"call":"io_uring_accept","group":"network","args":{"sockfd":4,"addr":"0x0","addrlen":"0x0","flags":"0x0","userData":"0x9"},"ret":5,"latencyNs":1`,
				`"call":"io_uring_accept","group":"network","args":{"sockfd":4,"addr":"0x0","addrlen":"0x0","flags":"0x0","userData":"0x9"},"ret":6,"latencyNs":1`,
				`"call":"io_uring_accept","group":"network","args":{"sockfd":4,"addr":"0x0","addrlen":"0x0","flags":"0x0","userData":"0x9"},"ret":-1,"errno":"ECANCELED","latencyNs":1`,
			},
		},
		"a result that no operation is known for": {
			[][]byte{kerneltest.Result(0, 0, 9, 5, 0)},
			[]string{`"call":"io_uring_completion","group":"io","args":{"userData":"0x9"},"ret":5`},
		},
		"results that the ring had no room for": {
			[][]byte{open, kerneltest.Submission(0xb, read, nil), kerneltest.Result(0, 0, 6, 42, 0), kerneltest.Result(0, 0, 5, 3, 0)},
			[]string{
				`"call":"io_uring_read","group":"io","args":{"fd":3,"buf":"0x7000","count":99,"offset":-1,"userData":"0x6"},"ret":42,"latencyNs":1`,
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x2","mode":"0x180","userData":"0x5"},"ret":3,"latencyNs":3,"path":"/etc/shop"`,
			},
		},
		"results of an operation with the data of successes without results": {
			[][]byte{silent, acceptMore, kerneltest.Result(0, 0, 5, 8, 2), kerneltest.Result(0xc, opAccept, 5, -125, 0)},
			[]string{
				silently,
				`"call":"io_uring_accept","group":"network","args":{"sockfd":4,"addr":"0x0","addrlen":"0x0","flags":"0x0","userData":"0x5"},"ret":8,"latencyNs":1`,
				`"call":"io_uring_accept","group":"network","args":{"sockfd":4,"addr":"0x0","addrlen":"0x0","flags":"0x0","userData":"0x5"},"ret":-1,"errno":"ECANCELED","latencyNs":1`,
			},
		},
		"the last of several operations that had no result fails, and the ring had no room": {
			[][]byte{silent, kerneltest.Submission(0xd, &kerneltest.Entry{Opcode: opRead, Flags: 0x40, FD: 9, UserData: 5}, nil), kerneltest.Result(0, 0, 5, -9, 0)},
			[]string{
				silently,
				`"call":"io_uring_read","group":"io","args":{"fd":9,"buf":"0x0","count":0,"offset":0,"sqeFlags":"0x40","userData":"0x5"}`,
				`"call":"io_uring_read","group":"io","args":{"fd":9,"buf":"0x0","count":0,"offset":0,"sqeFlags":"0x40","userData":"0x5"},"ret":-1,"errno":"EBADF","latencyNs":1`,
			},
		},
		"another process had a ring at the same address": {
			[][]byte{ofProcess(8, open), acceptMore, kerneltest.Result(0, 0, 5, 8, 2), ofProcess(9, kerneltest.Result(0, 0, 5, 8, 2))},
			[]string{
				`"call":"io_uring_accept","group":"network","args":{"sockfd":4,"addr":"0x0","addrlen":"0x0","flags":"0x0","userData":"0x5"},"ret":8,"latencyNs":1`,
				`"call":"io_uring_completion","group":"io","args":{"userData":"0x5"},"ret":8`,
			},
		},
		"operations with the same data": {
			[][]byte{
				open, opened(0xb, "/etc/other"), kerneltest.Result(0, 0, 5, -2, 0), kerneltest.Result(0xa, opOpenat, 5, -2, 0),
			},
			[]string{
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x2","mode":"0x180","userData":"0x5"},"ret":-1,"errno":"ENOENT","latencyNs":2,"path":"/etc/shop"`,
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/other","flags":"0x0","mode":"0x0","userData":"0x5"},"ret":-1,"errno":"ENOENT","latencyNs":2,"path":"/etc/other"`,
			},
		},
		"results that the ring had no room for, in another order than the operations with the same data": {
			[][]byte{
				open, opened(0xb, "/etc/other"), kerneltest.Result(0, 0, 5, -2, 0),
				opened(0xb, "/etc/third"), // so /etc/other has ended
				kerneltest.Result(0, 0, 5, -2, 0), kerneltest.Result(0, 0, 5, -2, 0),
			},
			[]string{
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/shop","flags":"0x2","mode":"0x180","userData":"0x5"},"ret":-1,"errno":"ENOENT","latencyNs":2,"path":"/etc/shop"`,
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/other","flags":"0x0","mode":"0x0","userData":"0x5"},"ret":-1,"errno":"ENOENT","latencyNs":3,"path":"/etc/other"`,
				`"call":"io_uring_openat","group":"file","args":{"dirfd":-100,"pathname":"/etc/third","flags":"0x0","mode":"0x0","userData":"0x5"},"ret":-1,"errno":"ENOENT","latencyNs":2,"path":"/etc/third"`,
			},
		},
		"an operation in no group": {
			[][]byte{kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opPollAdd}, nil), kerneltest.Result(0xa, opPollAdd, 0, 1, 0)},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var records [][]byte
			for _, b := range tc.records { // the cases share some
				records = append(records, append([]byte(nil), b...))
			}
			got := decodeAll(t, decoderOf(0, GroupFile, GroupIO, GroupNetwork), records...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Operations that are wanted follow the groups, and those that may have several results are recognized.
func TestOperationsFollowTheGroups(t *testing.T) {
	const newer = 100 // no kernel has it yet
	for name, tc := range map[string]struct {
		groups   []Group
		recorded []int
		not      []int
		any      bool
	}{
		"file":    {[]Group{GroupFile}, []int{opOpenat, opClose}, []int{opRead, opPollAdd, opConnect}, true},
		"io":      {[]Group{GroupIO}, []int{opRead, opPollAdd}, []int{opOpenat, opConnect}, true},
		"network": {[]Group{GroupNetwork}, []int{opConnect, opAccept}, []int{opOpenat, opRead}, true},
		"process": {[]Group{GroupProcess, GroupSignal}, nil, []int{opOpenat, opRead, opAccept, opPollAdd}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rows := Operations(tc.groups)
			for _, n := range tc.recorded {
				if rows[n].Use != uint8(kernel.OpRecorded) {
					t.Errorf("operation %d is not recorded", n)
				}
			}
			for _, n := range tc.not {
				if rows[n].Use != 0 {
					t.Errorf("operation %d is recorded", n)
				}
			}
			if rows[newer].Use != uint8(kernel.OpUnknown) || HasOperations(tc.groups) != tc.any {
				t.Errorf("unknown operations: %d, has operations: %t", rows[newer].Use, HasOperations(tc.groups))
			}
		})
	}
}

// An operation that took less than the shortest latency has no event.
func TestShortOperations(t *testing.T) {
	records := [][]byte{
		kerneltest.Submission(0xa, &kerneltest.Entry{Opcode: opRead, UserData: 1}, nil), kerneltest.Submission(0xb, &kerneltest.Entry{Opcode: opRead, UserData: 2}, nil),
		kerneltest.Result(0xb, opRead, 2, 0, 0), kerneltest.Result(0xa, opRead, 1, 0, 0),
	}
	got := decodeAll(t, decoderOf(2, GroupIO), records...)
	if len(got) != 1 || !strings.Contains(got[0], `"userData":"0x1"},"ret":0,"latencyNs":3`) {
		t.Errorf("%q", got)
	}
}

// Operations that never end do not fill the memory. Those that are forgotten are counted, unless they had their events.
func TestOperationsAreBounded(t *testing.T) {
	const silent = 0x40 // IOSQE_CQE_SKIP_SUCCESS
	for flags, want := range map[uint8]uint64{0: 100, silent: 0} {
		d := decoderOf(0, GroupIO)
		for i := range uint64(maxSubmitted + 100) {
			decodeAll(t, d, kerneltest.Submission(i+1, &kerneltest.Entry{Opcode: opRead, Flags: flags, UserData: i}, nil))
		}
		if n, m := len(d.urings.byRequest), len(d.urings.byData); n != maxSubmitted || m != maxSubmitted {
			t.Errorf("%d operations are remembered, %d by their data, want %d", n, m, maxSubmitted)
		}
		if got := d.Forgotten(); got != want {
			t.Errorf("flags %#x: %d operations are counted as forgotten, want %d", flags, got, want)
		}
	}
}

// An operation without the record of its end has an event when the trace ends, or counts when another takes its request.
func TestUnfinishedOperations(t *testing.T) {
	const silent = 0x40 // IOSQE_CQE_SKIP_SUCCESS
	d := decoderOf(0, GroupFile, GroupIO, GroupNetwork)
	submit := func(request uint64, op uint8, flags uint8) []byte {
		return kerneltest.Submission(request, &kerneltest.Entry{Opcode: op, Flags: flags, UserData: request}, nil)
	}
	decodeAll(t, d,
		submit(1, opRead, 0), submit(1, opRead, 0), // the first one counts
		submit(2, opRead, silent), submit(2, opClose, silent), // each has its event
		submit(3, opClose, 0), kerneltest.Result(3, opRead, 3, 0, 0), // the close counts
		submit(4, opAccept, 0), kerneltest.Result(0, 0, 4, 9, 2), // more results may follow
		submit(5, opPollAdd, 0), // in no group
		submit(6, opClose, 0),
	)
	var got []string
	for head, r := range d.Unfinished(20) {
		got = append(got, textOf(t, r))
		if head.Time != 20 || head.Pid != 7 {
			t.Errorf("%+v", head)
		}
	}
	want := []string{
		`"call":"io_uring_read","group":"io","args":{"fd":0,"buf":"0x0","count":0,"offset":0,"userData":"0x1"},"latencyNs":18`,
		`"call":"io_uring_close","group":"file","args":{"fd":0,"userData":"0x6"},"latencyNs":10`,
	}
	if diff := cmp.Diff(want, got); diff != "" || d.Forgotten() != 2 {
		t.Errorf("%d forgotten; events (-want +got):\n%s", d.Forgotten(), diff)
	}
}

// operationNames are the operations by their numbers (enum io_uring_op, Linux 6.18).
var operationNames = []string{
	"NOP", "READV", "WRITEV", "FSYNC", "READ_FIXED", "WRITE_FIXED", "POLL_ADD", "POLL_REMOVE", "SYNC_FILE_RANGE", "SENDMSG", "RECVMSG",
	"TIMEOUT", "TIMEOUT_REMOVE", "ACCEPT", "ASYNC_CANCEL", "LINK_TIMEOUT", "CONNECT", "FALLOCATE", "OPENAT", "CLOSE", "FILES_UPDATE",
	"STATX", "READ", "WRITE", "FADVISE", "MADVISE", "SEND", "RECV", "OPENAT2", "EPOLL_CTL", "SPLICE", "PROVIDE_BUFFERS", "REMOVE_BUFFERS",
	"TEE", "SHUTDOWN", "RENAMEAT", "UNLINKAT", "MKDIRAT", "SYMLINKAT", "LINKAT", "MSG_RING", "FSETXATTR", "SETXATTR", "FGETXATTR",
	"GETXATTR", "SOCKET", "URING_CMD", "SEND_ZC", "SENDMSG_ZC", "READ_MULTISHOT", "WAITID", "FUTEX_WAIT", "FUTEX_WAKE", "FUTEX_WAITV",
	"FIXED_FD_INSTALL", "FTRUNCATE", "BIND", "LISTEN", "RECV_ZC", "EPOLL_WAIT", "READV_FIXED", "WRITEV_FIXED", "PIPE",
}

// callsOfNoGroup are the calls of the operations that belong to no group, if they have one.
var callsOfNoGroup = map[string][]int{
	"NOP": nil, "POLL_ADD": {unix.SYS_PPOLL}, "POLL_REMOVE": nil, "SYNC_FILE_RANGE": {unix.SYS_SYNC_FILE_RANGE}, "TIMEOUT": nil,
	"TIMEOUT_REMOVE": nil, "ASYNC_CANCEL": nil, "LINK_TIMEOUT": nil, "FALLOCATE": {unix.SYS_FALLOCATE}, "FILES_UPDATE": nil,
	"FADVISE": {unix.SYS_FADVISE64}, "EPOLL_CTL": {unix.SYS_EPOLL_CTL}, "PROVIDE_BUFFERS": nil, "REMOVE_BUFFERS": nil, "MSG_RING": nil,
	"FSETXATTR": {unix.SYS_FSETXATTR}, "SETXATTR": {unix.SYS_SETXATTR}, "FGETXATTR": {unix.SYS_FGETXATTR}, "GETXATTR": {unix.SYS_GETXATTR},
	"URING_CMD": nil, "WAITID": {unix.SYS_WAITID}, "FUTEX_WAIT": {unix.SYS_FUTEX}, "FUTEX_WAKE": {unix.SYS_FUTEX},
	"FUTEX_WAITV": {unix.SYS_FUTEX_WAITV}, "EPOLL_WAIT": {unix.SYS_EPOLL_PWAIT}, "PIPE": {unix.SYS_PIPE2},
}

// Each operation is recorded with the group of its call, or its call is in no group, or it counts as lost: none is silently missing.
func TestEachOperationIsRecordedOrCounted(t *testing.T) {
	all := AllGroups()
	calls, rows := Calls(all), Operations(all)
	for n, row := range rows {
		if n >= len(operationNames) {
			if row.Use != uint8(kernel.OpUnknown) {
				t.Errorf("operation %d, which is not known, does not count as lost", n)
			}
			continue
		}
		others, outside := callsOfNoGroup[operationNames[n]]
		for _, number := range others {
			if calls[number] != nil {
				t.Errorf("the call of %s is in the group %s, but the operation is in none", operationNames[n], calls[number].Group)
			}
		}
		if o := operationOf(n); (o == nil) != outside || slices.Contains(ungrouped, n) != outside || row.Use == uint8(kernel.OpUnknown) {
			t.Errorf("%s: %+v, without a group: %t, want %t, row %+v", operationNames[n], o, slices.Contains(ungrouped, n), outside, row)
		}
	}
}

// The numbers are the running kernel's.
func TestNumbersOfOperations(t *testing.T) {
	spec, err := btf.LoadKernelSpec()
	if errors.Is(err, btf.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		t.Skip("the kernel has no BTF")
	}
	var op *btf.Enum
	if err == nil {
		err = spec.TypeByName("io_uring_op", &op)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range op.Values {
		name := strings.TrimPrefix(v.Name, "IORING_OP_")
		if name != "LAST" && v.Value < uint64(len(operationNames)) && operationNames[v.Value] != name {
			t.Errorf("operation %d is %s, want %s", v.Value, operationNames[v.Value], name)
		}
	}
}

// A tee has two descriptors, and its own flag for an index instead of the first one.
func TestTeeOfARing(t *testing.T) {
	const opTee = 33
	for name, tc := range map[string]struct {
		flags uint32
		want  string
	}{
		"by descriptors": {2, `"call":"io_uring_tee","group":"io","args":{"fd_in":4,"fd_out":5,"len":9,"flags":"0x2","userData":"0x6"},"ret":9,"latencyNs":1`},
		"by an index":    {1 << 31, `"call":"io_uring_tee","group":"io","args":{"fd_in":4,"fd_out":5,"len":9,"flags":"0x80000000","fixed":true,"userData":"0x6"},"ret":9,"latencyNs":1`},
	} {
		t.Run(name, func(t *testing.T) {
			entry := &kerneltest.Entry{Opcode: opTee, FD: 5, Len: 9, OpFlags: tc.flags, FileIndex: 4, UserData: 6}
			got := decodeAll(t, decoderOf(0, GroupIO), kerneltest.Submission(0xa, entry, nil), kerneltest.Result(0xa, opTee, 6, 9, 0))
			if diff := cmp.Diff([]string{tc.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
