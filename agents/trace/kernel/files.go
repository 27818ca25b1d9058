package kernel

import (
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"
)

// These bound the descriptors that are kept, and so the probe's memory to some 4 MiB.
const (
	maxKeptFiles = 1 << 17
	// maxKeptOfProcess leaves room for other processes. Names of more descriptors are not remembered either.
	maxKeptOfProcess = 1 << 12
)

// KeptFiles are the descriptors of the Pod's processes that stay open in a new program: they have no close-on-exec flag.
type KeptFiles struct {
	all map[KeptFile]struct{}
	// More says that there are descriptors beyond these.
	More bool
}

// Has reports whether a descriptor is known to stay open.
func (k *KeptFiles) Has(pid uint32, fd int32) bool {
	_, ok := k.all[KeptFile{Pid: pid, Fd: uint32(fd)}]
	return ok
}

// KeptFiles returns the descriptors that stay open in a new program. It needs Config.Files. It looks at the files of all
// processes of the node. If that takes longer than within, its error is iterator.ErrSlow, and the result has the descriptors
// that were found in this time.
func (p *Program) KeptFiles(within time.Duration) (KeptFiles, error) {
	return iterate(p.Objects.Programs[traceProgSondeFiles], "open files", within, readKeptFiles)
}

// readKeptFiles reads no further than what it keeps. The kernel gives all descriptors of a process in one go.
func readKeptFiles(r io.Reader) (KeptFiles, error) {
	found := KeptFiles{all: map[KeptFile]struct{}{}}
	var one KeptFile
	for pid, ofProcess := uint32(0), 0; ; {
		_, err := io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one)))
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read open files: %w", err)
		}
		if one.Pid != pid {
			pid, ofProcess = one.Pid, 0
		}
		ofProcess++
		switch {
		case len(found.all) == maxKeptFiles:
			found.More = true
			return found, nil
		case ofProcess > maxKeptOfProcess:
			found.More = true
		default:
			found.all[one] = struct{}{}
		}
	}
}
