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

// A probe that was killed has written more to its file than it has told, and may have been in the middle of a block.
// When the manager knows that it is dead, it has the keeper look what the files really hold.

// held is what a file holds, up to its last whole block.
type held struct {
	bytes              int64
	packets, truncated int64
	captured           int64 // bytes of the packets
}

// recount counts what a file holds.
func recount(from io.Reader) (held, error) {
	var h held
	var err error
	h.bytes, err = pcapng.Walk(from, func(g pcapng.Glance) {
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

// counted is what the files hold. They are counted once: the probe is dead, and a large result takes longer than one
// request may.
type counted struct {
	account account.Account
	sizes   map[string]int64 // in whole blocks
	err     error
	done    chan struct{} // closed when the rest is there
}

// recounts holds what was counted, for requests and for downloads.
type recounts struct {
	mu   sync.Mutex
	last *counted
}

// start begins to count, or returns what was counted or is being counted already. What failed is tried again.
func (r *recounts) start(count func() (account.Account, map[string]int64, error)) *counted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && !r.last.failed() {
		return r.last
	}
	c := &counted{done: make(chan struct{})}
	r.last = c
	go func() {
		defer close(c.done)
		defer func() {
			if r := recover(); r != nil { // a keeper that is gone serves nothing
				c.err = fmt.Errorf("panic: %v: please report this with the keeper's log", r)
			}
		}()
		c.account, c.sizes, c.err = count()
	}()
	return c
}

func (c *counted) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *counted) failed() bool { return c.ended() && c.err != nil }

// size returns how much of a file of the given size is to be served.
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

// recountResult answers with the account of a dead probe, in which the files' counts are those of the files. From then
// on no more of a file is served than was counted.
func (h *handler) recountResult(w http.ResponseWriter, r *http.Request) {
	c := h.recounts.start(func() (account.Account, map[string]int64, error) {
		a := h.progress.newest()
		sizes, err := h.recountFiles(&a)
		return a, sizes, err
	})
	select {
	case <-r.Context().Done():
		return // who asks again gets what is counted meanwhile
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
	h.log.Error("Counting what the files hold failed", "error", err)
	refuse(w, http.StatusInternalServerError, "the files cannot be read; the keeper's log says why")
}

// newest is the account as the probe wrote it last, which may not have been looked at yet.
func (p *progress) newest() account.Account {
	if b, _, err := p.read(); err == nil {
		if a, err := account.Parse(b); err == nil {
			return a
		}
	}
	return p.get().account
}

// recountFiles puts what the files hold into an account, and returns their sizes in whole blocks.
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
		if givenUp(name, known) {
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
		if sizes[name] = size; size > 0 { // else not even begun
			a.Files = append(a.Files, account.File{Name: name, Bytes: size})
		}
	}
	a.Seen = a.Packets + a.Overwritten + a.Dropped() + a.Events + a.LostEvents()
	return sizes, nil
}

// recountFile adds what a file holds to an account, and returns how many bytes of it are whole.
func recountFile(a *account.Account, name string, f io.Reader) (int64, error) {
	if isText(name) {
		return recountText(a, name, f)
	}
	n, err := recount(f)
	a.Packets, a.Bytes, a.Truncated = a.Packets+n.packets, a.Bytes+n.captured, a.Truncated+n.truncated
	return n.bytes, err
}

// files lists the capture files of the volume, by name.
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
	names = slices.DeleteFunc(names, func(name string) bool { return !isResult(name) || !served(name, nil) })
	slices.Sort(names)
	return names, nil
}
