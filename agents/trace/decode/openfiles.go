package decode

import (
	"iter"
	"maps"
)

// maxFiles bounds the remembered descriptors of one process. Others have no name.
const maxFiles = 1 << 12

// lowFiles is how many descriptors are kept in an array.
const lowFiles = 32

// openFile is the file of a descriptor; zero if unknown.
type openFile struct {
	name    string
	cloexec bool
}

// openFiles are a process's open files by descriptor. The kernel assigns the lowest free descriptor. So most
// descriptors are low, where an array is several times as fast as a map.
type openFiles struct {
	low  [lowFiles]openFile
	high map[int32]openFile
}

func (f *openFiles) get(fd int32) openFile {
	if uint32(fd) < lowFiles {
		return f.low[fd]
	}
	return f.high[fd]
}

// room reports whether a descriptor can be remembered.
func (f *openFiles) room(fd int32) bool {
	if uint32(fd) < lowFiles || len(f.high) < maxFiles-lowFiles {
		return true
	}
	_, there := f.high[fd]
	return there
}

func (f *openFiles) set(fd int32, to openFile) {
	switch {
	case uint32(fd) < lowFiles:
		f.low[fd] = to
	case f.room(fd):
		if f.high == nil {
			f.high = map[int32]openFile{}
		}
		f.high[fd] = to
	}
}

func (f *openFiles) forget(fd int32) {
	if uint32(fd) < lowFiles {
		f.low[fd] = openFile{}
		return
	}
	delete(f.high, fd)
}

// all yields the known descriptors. The current one may be set or forgotten during the iteration.
func (f *openFiles) all() iter.Seq2[int32, openFile] {
	return func(yield func(int32, openFile) bool) {
		for fd, one := range f.low {
			if one != (openFile{}) && !yield(int32(fd), one) {
				return
			}
		}
		for fd, one := range f.high {
			if !yield(fd, one) {
				return
			}
		}
	}
}

func (f *openFiles) clone() openFiles { return openFiles{low: f.low, high: maps.Clone(f.high)} }
