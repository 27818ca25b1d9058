package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
)

const (
	// liveInterval is how often a file that is followed is looked at.
	liveInterval = 250 * time.Millisecond
	// liveBytes are sent between two looks: more than anybody can read, and not all that a trace may write. What a probe
	// writes is fetched whole at the end; until then it must not take the network from the target.
	liveBytes = 1 << 20
	// liveBehind is how far behind the newest line a reader of the newest may be before lines are left out.
	liveBehind = 8 << 20
)

// follower sends a trace's lines while they are written.
type follower struct {
	file *os.File
	name string
	h    *handler
	out  patientWriter
	// at is the first byte that was not sent yet; it begins a line.
	at int64
	// newest leaves lines out rather than be far behind.
	newest bool
}

// live sends a file of lines from a byte on, and what is written behind it, until nothing more is to come.
func (h *handler) live(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	from, err := strconv.ParseInt(r.URL.Query().Get(keeperapi.QueryFrom), 10, 64)
	if err != nil || from < 0 {
		refuse(w, http.StatusBadRequest, "from: want the number of the first byte")
		return
	}
	if !strings.HasSuffix(name, traceSuffix) {
		refuse(w, http.StatusNotFound, errNotServed.Error())
		return
	}
	f, _, ok := h.openResult(w, name, nil)
	if !ok {
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	out := newPatientWriter(w)
	fl := &follower{file: f, name: name, h: h, out: out, at: from, newest: r.URL.Query().Get(keeperapi.QueryNewest) == "1"}
	if err := fl.run(r.Context()); err != nil && r.Context().Err() == nil {
		h.log.Info("Breaking off lines that were followed", "file", name, "error", err.Error())
		panic(http.ErrAbortHandler) // the client sees that this is not the end
	}
}

// run sends what there is and what comes, until nothing more is to come.
func (f *follower) run(ctx context.Context) error {
	look, heartbeat := time.NewTicker(liveInterval), time.NewTicker(keeperapi.HeartbeatInterval)
	defer look.Stop()
	defer heartbeat.Stop()
	if err := f.out.control.Flush(); err != nil { // the header: there may be no line for long
		return fmt.Errorf("flush: %w", err)
	}
	for {
		over, err := f.look()
		if over || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-heartbeat.C:
			if !f.out.line(nil) {
				return errors.New("the client is gone")
			}
		case <-look.C:
		}
	}
}

// look sends what was written meanwhile, and tells whether that was all.
func (f *follower) look() (over bool, err error) {
	now := f.h.progress.get() // before the size: what is written behind the end is none of the result
	size, err := f.size()
	if err != nil {
		return false, err
	}
	whole := f.h.recounts.size(f.name, wholeSize(f.file, f.name, size, now.account.Files))
	over = !now.final.IsZero()
	if f.newest && whole-f.at > liveBehind {
		if err := f.skip(whole); err != nil {
			return false, err
		}
	}
	to := whole
	if to-f.at > liveBytes && !over {
		if end := wholeLines(f.file, f.at, f.at+liveBytes); end > f.at {
			to = end
		}
	}
	if to <= f.at {
		return over, nil
	}
	n, err := io.Copy(f.out, io.NewSectionReader(f.file, f.at, to-f.at))
	f.at += n
	if err == nil {
		err = f.out.control.Flush()
	}
	if err != nil {
		return false, fmt.Errorf("send lines: %w", err)
	}
	return over, nil
}

func (f *follower) size() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.file.Fd()), &st); err != nil {
		return 0, fmt.Errorf("look at the file: %w", err)
	}
	return st.Size, nil
}

// skip goes on with the newest lines, and tells the reader how many bytes he does not get.
func (f *follower) skip(whole int64) error {
	to := nextLine(f.file, whole-liveBytes, whole)
	line, err := tracefmt.AppendSkip(nil, to-f.at)
	if err != nil {
		return err
	}
	if _, err := f.out.Write(line); err != nil {
		return fmt.Errorf("send lines: %w", err)
	}
	f.at = to
	return nil
}

// nextLine is where the first line begins behind from; whole where there is none.
func nextLine(file io.ReaderAt, from, whole int64) int64 {
	b := make([]byte, 64<<10)
	for from < whole {
		n, err := file.ReadAt(b[:min(int64(len(b)), whole-from)], from)
		if i := bytes.IndexByte(b[:n], '\n'); i >= 0 {
			return from + int64(i) + 1
		}
		from += int64(n)
		if err != nil || n == 0 {
			break
		}
	}
	return whole
}
