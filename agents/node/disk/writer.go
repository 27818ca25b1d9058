package disk

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// write is the writer's goroutine. It writes ready bytes until the Appender is closed.
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

// writeReady writes the ready bytes, unless another goroutine is in a write. It releases the lock during each write.
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
				a.burst = a.written + burstLen
			}
			if notDirect(err) {
				a.file.stopDirect()
				err = nil
			}
		}
		a.err = err
		a.moved.Broadcast()
	}
	a.writing = false
	a.moved.Broadcast()
}

// next returns the bytes to write next, and whether past the page cache.
func (a *Appender) next() (p []byte, direct bool) {
	from := a.at(a.written)
	p = a.buffer[from:min(from+a.ready-a.written, bufferLen)]
	if a.file.inMemory() {
		return p[:min(len(p), bufferLen/2)], false
	}
	align := a.file.align()
	if align == 0 || a.written < a.burst {
		return p[:min(len(p), cachedLen)], false
	}
	// The file's last page is in the page cache: first write to its end.
	rest := int(-a.written & int64(align-1))
	if len(p)-rest < directLen {
		return p[:min(len(p), cachedLen)], false
	}
	if rest > 0 {
		return p[:rest], false
	}
	return p[:min(len(p), bufferLen/2)&^(align-1)], true
}

// notDirect reports whether a write past the page cache is impossible, or has too little space. The file is then
// written through the page cache, to the disk's last free byte.
func notDirect(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || IsFull(err)
}
