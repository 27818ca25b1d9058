package decode

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"unsafe"
)

// maxFiles bounds the remembered descriptors of one process. Others have no name.
const maxFiles = 1 << 12

// lowFiles is how many descriptors are kept in an array.
const lowFiles = 32

// Memory in bytes. A map has up to 75 for an entry of 32.
const (
	tableBytes = int(unsafe.Sizeof(fileTable{}))
	highBytes  = 80
)

// openFile is the file of a descriptor; zero if unknown.
type openFile struct {
	name string
	// since is when a call has given the descriptor this name.
	since   stamp
	cloexec bool
	// doubtful says that earlier events have another file (Decoder.Doubt).
	doubtful bool
}

// stamp is a time since boot in units of 256 ns, with the highest byte first. With the two bools beside it, it takes eight bytes: most
// of the decoder's memory is open files.
type stamp [6]byte

// stampOf returns the stamp of a time in nanoseconds. Stamps last for two years.
func stampOf(ns uint64) stamp {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], ns)
	return stamp(b[1:7])
}

func (s stamp) after(t stamp) bool { return bytes.Compare(s[:], t[:]) > 0 }

// latest returns the later one of two stamps: the rings of the CPUs are looked through one after the other.
func (s stamp) latest(t stamp) stamp {
	if s.after(t) {
		return s
	}
	return t
}

// openFiles are a process's open files by descriptor. A fork shares them until one of the two processes changes its own.
// They take their memory from a budget. Where that has no room, descriptors are unknown.
type openFiles struct {
	budget *budget
	table  *fileTable // nil: none is known
}

// fileTable is the table of all processes that share it. The kernel assigns the lowest free descriptor. So most
// descriptors are low, where an array is several times as fast as a map.
type fileTable struct {
	low   [lowFiles]openFile
	high  map[int32]openFile // without unknown ones
	room  int                // the most entries that high has had: a map does not shrink
	bytes int                // taken from the budget
	users int
}

func (f *openFiles) get(fd int32) openFile {
	switch {
	case f.table == nil:
		return openFile{}
	case uint32(fd) < lowFiles:
		return f.table.low[fd]
	}
	return f.table.high[fd]
}

func (f *openFiles) set(fd int32, to openFile) {
	if to.name == "" && !to.cloexec && !to.doubtful {
		f.forget(fd)
		return
	}
	if t := f.own(); t == nil || !f.put(t, fd, to) {
		f.budget.refused++
		f.forget(fd) // the name that it had is wrong now
	}
}

// put changes the process's own table; false if there is no room.
func (f *openFiles) put(t *fileTable, fd int32, to openFile) bool {
	before := f.get(fd)
	more, low := len(to.name)-len(before.name), uint32(fd) < lowFiles
	grows := !low && before == (openFile{}) && len(t.high) == t.room
	if grows {
		more += highBytes
	}
	if grows && t.room == maxFiles-lowFiles || !f.budget.take(more) {
		return false
	}
	t.bytes += more
	switch {
	case low:
		t.low[fd] = to
		return true
	case t.high == nil:
		t.high = map[int32]openFile{}
	}
	if grows {
		t.room++
	}
	t.high[fd] = to
	return true
}

func (f *openFiles) forget(fd int32) {
	before := f.get(fd)
	if before == (openFile{}) {
		return
	}
	t := f.own()
	if t == nil {
		return
	}
	less := len(before.name)
	if uint32(fd) < lowFiles {
		t.low[fd] = openFile{}
	} else if delete(t.high, fd); len(t.high) == 0 {
		less += t.room * highBytes
		t.high, t.room = nil, 0
	}
	t.bytes -= less
	f.budget.give(less)
}

// own returns a table that no other process uses. It returns nil, and all descriptors are unknown, if the budget has no
// room for one.
func (f *openFiles) own() *fileTable {
	shared := f.table
	if shared != nil && shared.users == 1 {
		return shared
	}
	f.release()
	bytes := tableBytes
	if shared != nil {
		bytes = shared.bytes
	}
	if !f.budget.take(bytes) {
		f.budget.refused += shared.known()
		return nil
	}
	f.table = &fileTable{bytes: bytes, users: 1}
	if shared != nil {
		f.table.low, f.table.high, f.table.room = shared.low, maps.Clone(shared.high), shared.room
	}
	return f.table
}

// known returns how many descriptors are known.
func (t *fileTable) known() (n uint64) {
	if t == nil {
		return 0
	}
	for _, one := range t.low {
		if one != (openFile{}) {
			n++
		}
	}
	return n + uint64(len(t.high))
}

// all yields the known descriptors. The current one may be set or forgotten during the iteration.
func (f *openFiles) all() iter.Seq2[int32, openFile] {
	return func(yield func(int32, openFile) bool) {
		t := f.table
		if t == nil {
			return
		}
		for fd, one := range t.low {
			if one != (openFile{}) && !yield(int32(fd), one) {
				return
			}
		}
		for fd, one := range t.high {
			if !yield(fd, one) {
				return
			}
		}
	}
}

// share returns the files for a child.
func (f *openFiles) share() openFiles {
	if f.table != nil {
		f.table.users++
	}
	return *f
}

// release gives the process's memory back. Then none is known.
func (f *openFiles) release() {
	t := f.table
	if t == nil {
		return
	}
	if t.users--; t.users == 0 {
		f.budget.give(t.bytes)
	}
	f.table = nil
}
