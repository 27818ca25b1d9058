package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
)

const (
	// liveInterval is how often a followed trace is read, and packetInterval how often a followed capture is.
	liveInterval   = 250 * time.Millisecond
	packetInterval = 25 * time.Millisecond
	// liveBytes is how many bytes of a trace are sent at a time: more than a person can read, but less than a trace may write, so
	// that the target keeps its network.
	liveBytes = 1 << 20
	// maxLag is how many bytes a reader of the newest lines may be behind before lines are skipped.
	maxLag = 8 << 20
)

// follower sends the records of a file while they are written.
type follower struct {
	*records

	file *os.File
	name string
	h    *handler
	out  deadlineWriter
	// at is the first byte to send next; it starts a record.
	at int64
	// newest skips records rather than lag far behind.
	newest bool
	// completeTo is the time up to which the reader knows that it has all records.
	completeTo uint64
	// sent is when records were sent last.
	sent time.Time
}

// live sends a file of lines or blocks from an offset on, with those that are appended to it, until the capture has ended.
func (h *handler) live(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	q, err := keeperapi.ParseLiveQuery(r.URL.Query())
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	form := lineRecords
	switch {
	case strings.HasSuffix(name, packetSuffix):
		form = blockRecords
	case !strings.HasSuffix(name, traceSuffix):
		refuse(w, http.StatusNotFound, errNotServed.Error())
		return
	}
	if q.Ring {
		h.liveRing(w, r, name, q)
		return
	}
	f, _, ok := h.openResult(w, name, nil)
	if !ok {
		return
	}
	defer f.Close()
	fl := &follower{records: form, file: f, name: name, h: h, at: q.From, newest: q.Newest}
	fl.serve(w, r, fl.sendNew)
}

// serve answers with the records that sendNew sends, until it reports that these were the last ones.
func (f *follower) serve(w http.ResponseWriter, r *http.Request, sendNew func() (done bool, err error)) {
	w.Header().Set("Content-Type", f.contentType)
	w.WriteHeader(http.StatusOK)
	f.out = newDeadlineWriter(w)
	if f.horizon != nil {
		leave, err := f.h.control.follow()
		defer leave()
		if err != nil {
			f.h.log.Warn("Following packets without the probe's help", "file", f.name, "error", err.Error())
		}
	}
	if err := f.run(r.Context(), sendNew); err != nil && r.Context().Err() == nil {
		f.h.log.Info("Aborting a live download", "file", f.name, "error", err.Error())
		panic(http.ErrAbortHandler) // so that the client sees an incomplete answer
	}
}

// run sends the file, with the records that are appended to it, until the capture has ended.
func (f *follower) run(ctx context.Context, sendNew func() (done bool, err error)) error {
	tick, heartbeat := time.NewTicker(f.interval), time.NewTicker(keeperapi.HeartbeatInterval)
	defer tick.Stop()
	defer heartbeat.Stop()
	if err := f.out.control.Flush(); err != nil { // the header: the first record may come late
		return fmt.Errorf("flush: %w", err)
	}
	for {
		done, err := sendNew()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-heartbeat.C:
			if f.file == nil {
				continue // a reader of a ring takes the name of a file for the first sign of life, and silence makes it ask again
			}
			if err := f.send(f.heartbeat); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

// send sends a record that is not in the file.
func (f *follower) send(record []byte) error {
	_, err := f.out.Write(record)
	if err == nil {
		err = f.out.control.Flush()
	}
	if err != nil {
		return fmt.Errorf("send records: %w", err)
	}
	return nil
}

// sendNew sends the appended records, and reports whether these were the last ones.
func (f *follower) sendNew() (done bool, err error) {
	now := f.h.progress.get() // before the size, so that the end includes everything written before it
	var until uint64
	if f.horizon != nil {
		until = f.h.results.horizon() // before the size, too
	}
	size, err := f.size()
	if err != nil {
		return false, err
	}
	end := f.h.recounts.size(f.name, completeSize(f.file, f.name, size, f.known(size, now.account.Files)))
	done = !now.final.IsZero()
	if f.newest && end-f.at > f.maxLag {
		instead, at, err := f.skip(f.file, f.at, end)
		if err == nil {
			err = f.send(instead)
		}
		if err != nil {
			return false, err
		}
		f.at = at
	}
	to := end
	if most := f.allowed(); to-f.at > most && !done {
		if whole := f.end(f.file, f.at, f.at+most); whole > f.at {
			to = whole
		}
	}
	if to > f.at {
		if err := f.sendTo(to); err != nil {
			return false, err
		}
	}
	if to < end || until <= f.completeTo {
		return done, nil
	}
	f.completeTo = until
	return done, f.send(f.horizon(until))
}

// known adds to the account's files what the reader has: it is complete, and need not be read again.
func (f *follower) known(size int64, files []account.File) []account.File {
	if f.at > size {
		return files
	}
	return append(slices.Clone(files), account.File{Name: f.name, Bytes: f.at})
}

// allowed returns how many bytes may be sent: atOnce in liveInterval, so that the target keeps its network.
func (f *follower) allowed() int64 {
	return f.atOnce * int64(min(max(time.Since(f.sent), f.interval), liveInterval)) / int64(liveInterval)
}

// sendTo sends the file up to an offset.
func (f *follower) sendTo(to int64) error {
	f.sent = time.Now()
	n, err := io.Copy(f.out, io.NewSectionReader(f.file, f.at, to-f.at))
	f.at += n
	if err == nil {
		err = f.out.control.Flush()
	}
	if err != nil {
		return fmt.Errorf("send records: %w", err)
	}
	return nil
}

// errRemoved says that a ring of files has removed a file to make room for a newer one.
var errRemoved = errors.New("a newer file has replaced this one")

// size returns the size of the file, or errRemoved if it has lost its name: it is emptied then.
func (f *follower) size() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.file.Fd()), &st); err != nil {
		return 0, fmt.Errorf("inspect the file: %w", err)
	}
	if st.Nlink == 0 {
		return 0, errRemoved
	}
	return st.Size, nil
}

// nextLine returns where the first line after from starts; end if there is none.
func nextLine(file io.ReaderAt, from, end int64) int64 {
	b := make([]byte, 64<<10)
	for from < end {
		n, err := file.ReadAt(b[:min(int64(len(b)), end-from)], from)
		if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
			return from + int64(i) + 1
		}
		from += int64(n)
		if err != nil || n == 0 {
			break
		}
	}
	return end
}
