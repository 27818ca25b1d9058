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
		for ; n > 0; n -= filesAtOnce {
			all = append(all, KeptFile{Pid: pid, First: uint32(len(all) * filesAtOnce), Open: ^uint64(0) >> max(0, filesAtOnce-n)})
		}
		return all
	}
	many := []KeptFile{}
	for pid := range uint32(maxKeptFiles/maxKeptOfProcess + 1) {
		many = append(many, files(pid+1, maxKeptOfProcess)...)
	}
	last := many[len(many)-1]
	for name, tc := range map[string]struct {
		files    []KeptFile
		pid, fd  uint32
		wantHas  bool
		wantMore bool
		// wantBeyond: it was not looked at.
		wantBeyond bool
	}{
		"few":                           {files: files(7, 3), pid: 7, fd: 2, wantHas: true},
		"beyond the last":               {files: files(7, 3), pid: 7, fd: 3},
		"closed between others":         {files: []KeptFile{{Pid: 7, First: 64, Open: 0b101}}, pid: 7, fd: 65},
		"open between others":           {files: []KeptFile{{Pid: 7, First: 64, Open: 0b10101}}, pid: 7, fd: 66, wantHas: true},
		"as many as a process may have": {files: files(7, maxKeptOfProcess), pid: 7, fd: maxKeptOfProcess - 1, wantHas: true},
		"more of a process":             {files: files(7, maxKeptOfProcess+1), pid: 7, fd: maxKeptOfProcess, wantMore: true},
		"another process after it":      {files: slices.Concat(files(7, maxKeptOfProcess+9), files(8, 1)), pid: 8, wantHas: true, wantMore: true},
		"more of all processes":         {files: many, pid: last.Pid, fd: last.First, wantMore: true},
		"not beyond what was looked at": {files: append(files(7, 3), KeptFile{Pid: 7, First: 1 << 14}), pid: 7, fd: 1<<14 - 1},
		"beyond what was looked at":     {files: append(files(7, 3), KeptFile{Pid: 7, First: 1 << 14}), pid: 7, fd: 1 << 14, wantBeyond: true},
		"beyond it of another process":  {files: append(files(7, 3), KeptFile{Pid: 7, First: 1 << 14}), pid: 8, fd: 1 << 14},
	} {
		t.Run(name, func(t *testing.T) {
			b := unsafe.Slice((*byte)(unsafe.Pointer(&tc.files[0])), len(tc.files)*int(unsafe.Sizeof(tc.files[0])))
			got, err := readKeptFiles(bytes.NewReader(b))
			if has := got.Has(tc.pid, int32(tc.fd)); err != nil || has != tc.wantHas || got.More != tc.wantMore {
				t.Errorf("has %d of %d: %t, more: %t, %v; want %t and %t", tc.fd, tc.pid, has, got.More, err, tc.wantHas, tc.wantMore)
			}
			if beyond := got.IsBeyond(tc.pid, int32(tc.fd)); beyond != tc.wantBeyond {
				t.Errorf("%d of %d was not looked at: %t, want %t", tc.fd, tc.pid, beyond, tc.wantBeyond)
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

// The kernel holds each file for a moment when iter/task_file comes to it. If its process closes it then, the reader releases it, and
// waits for its file system: for ever, and beyond any signal, if that is FUSE with FUSE_WRITEBACK_CACHE and the server does not answer.
func TestKeptFilesAreNotHeld(t *testing.T) {
	spec, err := loadTrace()
	if err != nil {
		t.Fatal(err)
	}
	if to := spec.Programs[traceProgSondeFiles].AttachTo; to != "task" {
		t.Errorf("the program is attached to %s, want task", to)
	}
}
