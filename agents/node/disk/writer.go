package disk

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// write is the writer: it writes what is ready until the Appender is closed.
func (a *Appender) write() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for !a.closed {
		a.writeReady()
		if !a.closed {
			a.wanted.Wait()
		}
	}
}

// writeReady writes what is ready, unless somebody does so already. It holds the lock, but not while the disk works.
func (a *Appender) writeReady() {
	if a.writing {
		return
	}
	a.writing = true
	for a.err == nil && a.written < a.ready {
		p, direct := a.next()
		a.mu.Unlock()
		began := a.now()
		n, err := a.file.append(p, direct)
		took := a.now().Sub(began)
		a.mu.Lock()
		a.written += int64(n)
		if direct {
			if a.full && took > time.Duration(n)*time.Second/slowRate {
				a.hurried = a.written + hurryLen
			}
			if refused(err) {
				a.file.leaveDirect()
				err = nil
			}
		}
		a.err = err
		a.moved.Broadcast()
	}
	a.writing = false
	a.moved.Broadcast()
}

// next is what is written next, and whether past the page cache.
func (a *Appender) next() (p []byte, direct bool) {
	from := a.at(a.written)
	p = a.buffer[from:min(from+a.ready-a.written, bufferLen)]
	if a.file.inMemory() {
		return p[:min(len(p), bufferLen/2)], false
	}
	align := a.file.align()
	if align == 0 || a.written < a.hurried {
		return p[:min(len(p), cachedLen)], false
	}
	// To the end of the last page that is in the file, which is in the page cache.
	rest := int(-a.written & int64(align-1))
	if len(p)-rest < directLen {
		return p[:min(len(p), cachedLen)], false
	}
	if rest > 0 {
		return p[:rest], false
	}
	return p[:min(len(p), bufferLen/2)&^(align-1)], true
}

// refused tells that a write past the page cache is not to be had, or that there is no room for all of it: what has room
// goes through the page cache, to the last byte.
func refused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || IsFull(err)
}
