package kernel

import (
	"bytes"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestReadTasks(t *testing.T) {
	one := Task{Pid: 7, Cgroup: 11}
	b := unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	got, err := readTasks(bytes.NewReader(b))
	if diff := cmp.Diff(map[uint32]Task{7: one}, got, cmpopts.IgnoreFields(Task{}, "_")); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := readTasks(bytes.NewReader(b[:5])); err == nil {
		t.Error("half a task was accepted")
	}
}

// bytesOf returns sockets as the program writes them.
func bytesOf(all ...Socket) []byte {
	var b []byte
	for i := range all {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&all[i])), unsafe.Sizeof(all[i]))...)
	}
	return b
}

func anySocket(*Socket) bool { return true }

func TestReadSockets(t *testing.T) {
	b := bytesOf(Socket{Inode: 7, Unowned: 1}, Socket{Inode: 8}, Socket{Inode: 7, Unowned: 1})
	got, err := readSockets(bytes.NewReader(b), anySocket)
	if err != nil || len(got.All) != 2 || got.All[0].Inode != 7 || got.All[1].Inode != 8 || got.More || got.Unowned != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err = readSockets(bytes.NewReader(b[:len(b)-1]), anySocket)
	if err == nil || len(got.All) != 2 {
		t.Errorf("%d sockets before half a one, %v; want 2 and an error", len(got.All), err)
	}
}

// Sockets beyond the bound are reported as such, and sockets that keep does not select are not counted towards it.
func TestReadSocketsWithoutRoom(t *testing.T) {
	full := make([]Socket, maxSockets)
	for i := range full {
		full[i].Inode = uint64(i + 1)
	}
	fits, more := bytesOf(full...), uint64(maxSockets)
	for name, tc := range map[string]struct {
		after       []Socket
		keep        func(*Socket) bool
		wantMore    bool
		wantUnowned uint64
	}{
		"all have room":              {keep: anySocket},
		"one that is known":          {after: []Socket{{Inode: 1}}, keep: anySocket},
		"one more":                   {after: []Socket{{Inode: more + 1}}, keep: anySocket, wantMore: true},
		"two more, without an owner": {after: []Socket{{Inode: more + 1, Unowned: 1}, {Inode: more + 2, Unowned: 1}}, keep: anySocket, wantMore: true, wantUnowned: 1},
		"one more, others not wanted": {
			after: []Socket{{Inode: more + 1, Unowned: 1}}, keep: func(s *Socket) bool { return s.Inode > more }, wantUnowned: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readSockets(bytes.NewReader(append(slices.Clip(fits), bytesOf(tc.after...)...)), tc.keep)
			if err != nil || len(got.All) > maxSockets || got.More != tc.wantMore || got.Unowned != tc.wantUnowned {
				t.Errorf("%d sockets, more: %t, %d without an owner, %v; want more: %t, and %d", len(got.All), got.More, got.Unowned, err, tc.wantMore, tc.wantUnowned)
			}
		})
	}
}

// One process's descriptors take no room from another's, and those beyond the bounds are reported.
func TestReadKeptFiles(t *testing.T) {
	files := func(pid uint32, n int) (all []KeptFile) {
		for fd := range n {
			all = append(all, KeptFile{Pid: pid, Fd: uint32(fd)})
		}
		return all
	}
	many := []KeptFile{}
	for pid := range uint32(maxKeptFiles/maxKeptOfProcess + 1) {
		many = append(many, files(pid+1, maxKeptOfProcess)...)
	}
	for name, tc := range map[string]struct {
		files    []KeptFile
		last     KeptFile
		wantLast bool
		wantMore bool
	}{
		"few":                           {files: files(7, 3), last: KeptFile{Pid: 7, Fd: 2}, wantLast: true},
		"as many as a process may have": {files: files(7, maxKeptOfProcess), last: KeptFile{Pid: 7, Fd: maxKeptOfProcess - 1}, wantLast: true},
		"more of a process":             {files: files(7, maxKeptOfProcess+1), last: KeptFile{Pid: 7, Fd: maxKeptOfProcess}, wantMore: true},
		"another process after it":      {files: slices.Concat(files(7, maxKeptOfProcess+9), files(8, 1)), last: KeptFile{Pid: 8}, wantLast: true, wantMore: true},
		"more of all processes":         {files: many, last: many[len(many)-1], wantMore: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := unsafe.Slice((*byte)(unsafe.Pointer(&tc.files[0])), len(tc.files)*int(unsafe.Sizeof(tc.files[0])))
			got, err := readKeptFiles(bytes.NewReader(b))
			if has := got.Has(tc.last.Pid, int32(tc.last.Fd)); err != nil || has != tc.wantLast || got.More != tc.wantMore {
				t.Errorf("has %+v: %t, more: %t, %v; want %t and %t", tc.last, has, got.More, err, tc.wantLast, tc.wantMore)
			}
			if got.Has(9999, 0) {
				t.Error("it has a descriptor of a process without any")
			}
		})
	}
	if _, err := readKeptFiles(bytes.NewReader(make([]byte, 5))); err == nil {
		t.Error("half a descriptor was accepted")
	}
}
