package kernel

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
	"unsafe"
)

// These bound the descriptors that are kept, and so the probe's memory to some 8 MiB.
const (
	maxKeptFiles = 1 << 17
	// maxKeptOfProcess leaves room for other processes. Names of more descriptors are not remembered either.
	maxKeptOfProcess = 1 << 12
	// filesAtOnce are the descriptors of one KeptFile.
	filesAtOnce = 64
)

// KeptFiles are the descriptors of the Pod's processes that stay open in a new program: they have no close-on-exec flag.
type KeptFiles struct {
	all map[filesOf]uint64
	// from has the first descriptor that was not looked at of processes with large tables, which may have none there.
	from map[uint32]uint32
	// More says that there are descriptors beyond these.
	More bool
}

// filesOf are filesAtOnce descriptors of a process, from the first one on.
type filesOf struct{ pid, first uint32 }

// Has reports whether a descriptor is known to stay open.
func (k *KeptFiles) Has(pid uint32, fd int32) bool {
	n := uint32(fd) % filesAtOnce
	return k.all[filesOf{pid, uint32(fd) - n}]>>n&1 != 0
}

// IsBeyond reports whether an open descriptor was not looked at, because its number is too high.
func (k *KeptFiles) IsBeyond(pid uint32, fd int32) bool {
	from, large := k.from[pid]
	return large && uint32(fd) >= from
}

// KeptFiles returns the descriptors that stay open in a new program. It needs Config.Files. If it takes longer than within, its
// error is iterator.ErrSlow, and the result has the descriptors that were found in this time.
func (p *Program) KeptFiles(within time.Duration) (KeptFiles, error) {
	return iterate(p.Objects.Programs[traceProgSondeFiles], "tables of files", within, readKeptFiles)
}

// readKeptFiles reads no further than what it keeps.
func readKeptFiles(r io.Reader) (KeptFiles, error) {
	found := KeptFiles{all: map[filesOf]uint64{}, from: map[uint32]uint32{}}
	var one KeptFile
	kept, ofProcess := 0, 0
	for pid := uint32(0); ; {
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one)))
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read tables of files: %w", err)
		}
		if one.Pid != pid {
			pid, ofProcess = one.Pid, 0
		}
		n := bits.OnesCount64(one.Open)
		ofProcess += n
		switch {
		case n == 0:
			found.from[pid] = one.First
		case ofProcess > maxKeptOfProcess:
			found.More = true
		case kept+n > maxKeptFiles:
			found.More = true
			return found, nil
		default:
			kept += n
			found.all[filesOf{pid, one.First}] = one.Open
		}
	}
}
