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

func TestReadSockets(t *testing.T) {
	one := func(inode uint64) []byte {
		s := Socket{Inode: inode}
		return bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&s)), unsafe.Sizeof(s)))
	}
	b := slices.Concat(one(7), one(8), one(7))
	got, err := readSockets(bytes.NewReader(b))
	if err != nil || len(got) != 2 || got[0].Inode != 7 || got[1].Inode != 8 {
		t.Errorf("%d sockets, %v", len(got), err)
	}
	got, err = readSockets(bytes.NewReader(b[:len(b)-1]))
	if err == nil || len(got) != 2 {
		t.Errorf("%d sockets before half a one, %v; want 2 and an error", len(got), err)
	}
}
