package keeper

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// A killed probe may have written more to its files than it has reported, and part of a block. When the manager knows
// that the probe is dead, it asks the keeper to count the files.

// contents counts a file, up to its last complete block.
type contents struct {
	bytes              int64
	packets, truncated int64
	captured           int64 // captured bytes of the packets
}

// recount counts the contents of a file.
func recount(from io.Reader) (contents, error) {
	var h contents
	var err error
	h.bytes, err = pcapng.Walk(from, func(g pcapng.BlockInfo) {
		if !g.Packet {
			return
		}
		h.packets++
		h.captured += int64(g.Captured)
		if g.Captured < g.Length {
			h.truncated++
		}
	})
	return h, err
}

// recounted is the result of counting all files. They are counted once: the probe is dead, and counting a large result
// may take longer than a request.
type recounted struct {
	account account.Account
	sizes   map[string]int64 // bytes of complete blocks or lines, by file
	err     error
	done    chan struct{} // closed when the other fields are set
}

// recounts keeps the newest result of counting, for recount requests and downloads.
type recounts struct {
	mu   sync.Mutex
	last *recounted
}

// start starts counting, unless it runs or has succeeded.
func (r *recounts) start(count func() (account.Account, map[string]int64, error)) *recounted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && !r.last.failed() {
		return r.last
	}
	c := &recounted{done: make(chan struct{})}
	r.last = c
	go func() {
		defer close(c.done)
		defer func() {
			if r := recover(); r != nil { // so that the keeper continues to serve the result
				c.err = fmt.Errorf("panic: %v: please report this with the keeper's log", r)
			}
		}()
		c.account, c.sizes, c.err = count()
	}()
	return c
}

func (c *recounted) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *recounted) failed() bool { return c.ended() && c.err != nil }

// size returns how many bytes of a file of the given size are served.
func (r *recounts) size(name string, size int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || !r.last.ended() {
		return size
	}
	if bound, ok := r.last.sizes[name]; ok {
		return min(size, bound)
	}
	return size
}

// recountResult answers with the account of a dead probe and the counts of its files. From then on only the counted
// bytes are served.
func (h *handler) recountResult(w http.ResponseWriter, r *http.Request) {
	c := h.recounts.start(func() (account.Account, map[string]int64, error) {
		a := h.progress.newest()
		sizes, err := h.recountFiles(&a)
		return a, sizes, err
	})
	select {
	case <-r.Context().Done():
		return // counting continues for the next request
	case <-c.done:
	}
	err := c.err
	if err == nil {
		var b []byte
		if b, err = c.account.Marshal(); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(append(b, '\n'))
			return
		}
	}
	h.log.Error("Counting the files failed", "error", err)
	refuse(w, http.StatusInternalServerError, "the files cannot be read: see the keeper's log")
}

// newest returns the probe's last account, which poll may not have read yet.
func (p *progress) newest() account.Account {
	if b, _, err := p.read(); err == nil {
		if a, err := account.Parse(b); err == nil {
			return a
		}
	}
	return p.get().account
}

// recountFiles sets the counts of an account from the files, and returns the sizes of their complete blocks.
func (h *handler) recountFiles(a *account.Account) (map[string]int64, error) {
	names, err := h.results.files()
	if err != nil {
		return nil, err
	}
	known := a.Files
	a.Files, a.Interfaces = nil, nil
	a.Packets, a.Bytes, a.Truncated, a.Events = 0, 0, 0, 0
	sizes := map[string]int64{}
	for _, name := range names {
		if isOverwritten(name, known) {
			continue // counted as overwritten
		}
		f, _, err := h.results.open(name)
		if errors.Is(err, errNotServed) {
			continue
		}
		if err != nil {
			return nil, err
		}
		size, err := recountFile(a, name, f)
		_ = f.Close() // opened for reading
		if err != nil {
			return nil, err
		}
		if sizes[name] = size; size > 0 { // a file of size 0 has no complete block
			a.Files = append(a.Files, account.File{Name: name, Bytes: size})
		}
	}
	a.Seen = a.Packets + a.Overwritten + a.Dropped() + a.Events + a.LostEvents()
	return sizes, nil
}

// recountFile adds a file's contents to an account, and returns the size of its complete blocks or lines.
func recountFile(a *account.Account, name string, f io.Reader) (int64, error) {
	if isText(name) {
		return recountText(a, name, f)
	}
	n, err := recount(f)
	a.Packets, a.Bytes, a.Truncated = a.Packets+n.packets, a.Bytes+n.captured, a.Truncated+n.truncated
	return n.bytes, err
}

// files lists the volume's results, by name.
func (r *results) files() ([]string, error) {
	fd, err := unix.Openat(int(r.dir.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open results volume: %w", err)
	}
	d := os.NewFile(uintptr(fd), r.dir.Name())
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list results volume: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !isResult(name) || !isServed(name, nil) })
	slices.Sort(names)
	return names, nil
}
