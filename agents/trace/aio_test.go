package trace

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/agents/trace/decode"
)

// aioReads is how many reads aioWorkload submits.
const aioReads = 3

// aioWorkload waits for a byte. Then it reads /dev/zero by Linux AIO.
func aioWorkload() {
	fmt.Println("ready")
	_, _ = unix.Read(0, make([]byte, 1))
	zero := value(unix.Open("/dev/zero", unix.O_RDONLY, 0))
	var ring uintptr
	call := func(number uintptr, args ...uintptr) uintptr {
		args = append(args, make([]uintptr, 6-len(args))...)
		n, _, errno := unix.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
		if errno != 0 {
			panic(errno)
		}
		return n
	}
	call(unix.SYS_IO_SETUP, aioReads, uintptr(unsafe.Pointer(&ring)))
	var entries [aioReads][64]byte // struct iocb
	var list [aioReads]*[64]byte
	var results [aioReads][32]byte
	var back [8]byte
	for i := range entries {
		e := &entries[i]
		binary.NativeEndian.PutUint32(e[20:], uint32(zero)) // the operation, at 16, is 0: pread
		binary.NativeEndian.PutUint64(e[24:], uint64(uintptr(unsafe.Pointer(&back))))
		binary.NativeEndian.PutUint64(e[32:], uint64(len(back)))
		list[i] = e
	}
	if n := call(unix.SYS_IO_SUBMIT, ring, aioReads, uintptr(unsafe.Pointer(&list))); n != aioReads {
		panic(n)
	}
	if n := call(unix.SYS_IO_GETEVENTS, ring, aioReads, aioReads, uintptr(unsafe.Pointer(&results))); n != aioReads {
		panic(n)
	}
	call(unix.SYS_IO_DESTROY, ring)
	os.Exit(0)
}

// Calls of Linux AIO are recorded. The operations that they submit are not, and count as lost, even if their call is too short to be
// recorded.
func TestAIO(t *testing.T) {
	t.Parallel()
	for name, minLatency := range map[string]time.Duration{"all": 0, "slow": time.Hour} {
		t.Run(name, func(t *testing.T) {
			pod := newTestPod(t)
			_, release := pod.startWorkload(t, "aio", 0)
			r := start(t, &Config{PodUID: pod.uid, Groups: []decode.Group{decode.GroupIO}, MinLatency: minLatency})
			release()
			submitted := map[string]int64{}
			for _, l := range r.stop() {
				submitted[l.Call] = *l.Ret
			}
			if a := r.result.Account; a.LostAIO != aioReads || a.Lost() != aioReads {
				t.Errorf("%+v, want %d lost operations", a, aioReads)
			}
			if minLatency == 0 && (submitted["io_submit"] != aioReads || submitted["io_getevents"] != aioReads) {
				t.Errorf("results %v, want io_submit and io_getevents with %d", submitted, aioReads)
			}
		})
	}
}
