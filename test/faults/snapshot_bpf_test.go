//go:build faults

package faults

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bpfObjects adds the programs and maps of the kernel, by type and name. (Their ids are new with each restart of a
// container where the cgroups are v2.)
func bpfObjects(t *testing.T, s snapshot) {
	t.Helper()
	for _, kind := range []struct {
		name          string
		next, open    uintptr
		nameAt, until int // where the name is in struct bpf_prog_info and struct bpf_map_info (linux/bpf.h)
	}{
		{"BPF program", unix.BPF_PROG_GET_NEXT_ID, unix.BPF_PROG_GET_FD_BY_ID, 64, 80},
		{"BPF map", unix.BPF_MAP_GET_NEXT_ID, unix.BPF_MAP_GET_FD_BY_ID, 24, 40},
	} {
		for id := uint32(0); ; {
			attr := [4]uint32{id}
			if _, err := bpf(kind.next, unsafe.Pointer(&attr), unsafe.Sizeof(attr)); errors.Is(err, unix.ENOENT) {
				break
			} else if err != nil {
				t.Fatalf("list %ss: %v", kind.name, err)
			}
			id = attr[1]
			attr = [4]uint32{id}
			fd, err := bpf(kind.open, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
			if err != nil {
				continue // gone meanwhile
			}
			info := make([]byte, 512) // not on the stack, which may move
			get := struct {
				fd, length uint32
				info       uint64
			}{uint32(fd), uint32(len(info)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(info))))} //nolint:gosec // a descriptor
			_, err = bpf(unix.BPF_OBJ_GET_INFO_BY_FD, unsafe.Pointer(&get), unsafe.Sizeof(get))
			runtime.KeepAlive(info)
			_ = unix.Close(int(fd)) //nolint:gosec // a descriptor
			if err != nil {
				t.Fatalf("look at a %s: %v", kind.name, err)
			}
			s[fmt.Sprintf("%s: type %d, %s", kind.name, info[0], unix.ByteSliceToString(info[kind.nameAt:kind.until]))]++
		}
	}
}

// bpf is bpf(2).
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (uintptr, error) {
	r, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}
