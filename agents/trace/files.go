package trace

import (
	"iter"
	"maps"
)

// maxFiles bounds the descriptors of one process that are remembered. What is beyond them has no name.
const maxFiles = 1 << 12

// lowFiles are those that are kept by their place.
const lowFiles = 32

// openFile is what a descriptor stands for; its zero value is one of which nothing is known.
type openFile struct {
	name    string
	cloexec bool
}

// openFiles are what a process's descriptors stand for. The kernel gives the lowest that is free: most are opened and closed
// among the low ones, where that takes a fraction of what it takes in a map.
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

// all are those of which something is known. While they are gone through, the one that is there may be set or forgotten.
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
