package keeper

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/keeperapi"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

const (
	// ringRead is how many bytes of a ring are read at a time, and maxRingBlock bounds a block. The longest one of a probe is a packet of
	// 256 KiB with its options.
	ringRead     = 128 << 10
	maxRingBlock = 1 << 20
	// ringStep is the least that a step costs of the bytes that may be sent at a time, so that empty steps end, too.
	ringStep = 4 << 10
	// ringTries is how often the oldest file is looked for at a time: a fast writer may remove it before it is opened.
	ringTries = 100
)

// ringFollower sends the blocks of a ring's files, one file after the other. The ring does not wait for its readers: when the file that is
// read is removed, the oldest file is next, and the account says how many packets were before it.
type ringFollower struct {
	*follower

	base   string
	number uint64 // of the file; zero before the first one
	// passed is the number of packets of the capture before at: sent, left out, or removed.
	passed uint64
	// resume opens the file that the reader asked for.
	resume bool
	// skipping leaves packets out until the newest file.
	skipping bool
	buf      []byte
}

// liveRing sends the blocks of a ring from a byte of one of its files on.
func (h *handler) liveRing(w http.ResponseWriter, r *http.Request, name string, q keeperapi.LiveQuery) {
	base, number, ok := captureconfig.ParseRingFile(name)
	if !ok {
		refuse(w, http.StatusBadRequest, keeperapi.QueryRing+": this is no file of a ring")
		return
	}
	f := &ringFollower{
		follower: &follower{records: blockRecords, name: name, h: h, newest: q.Newest},
		base:     base, passed: q.Passed, buf: make([]byte, ringRead),
	}
	defer f.close()
	if q.From > 0 || q.Passed > 0 { // others have no packets yet, and start with the oldest file
		f.resume, f.number, f.at = true, number, q.From
	}
	files, _, err := h.results.ringAfter(base, max(f.number, 1)-1) // if all files are older, another probe wrote them
	if err != nil {
		h.log.Error("Listing the files of a ring failed", "file", name, "error", err)
		refuse(w, http.StatusInternalServerError, "the files cannot be listed: see the keeper's log")
		return
	}
	if files == 0 || !isServed(name, nil) {
		refuse(w, http.StatusNotFound, errNotServed.Error())
		return
	}
	f.serve(w, r, f.sendNew)
}

// sendNew sends the appended blocks, and reports whether these were the last ones.
func (f *ringFollower) sendNew() (done bool, err error) {
	now := f.h.progress.get()      // before the files, so that the end includes everything written before it
	until := f.h.results.horizon() // before the files, too
	done = !now.final.IsZero()
	budget := f.allowed()
	if done {
		budget = math.MaxInt64
	}
	for more := true; more; {
		if budget <= 0 {
			return false, nil
		}
		var sent int64
		sent, more, err = f.step()
		if errors.Is(err, errRemoved) {
			f.close()
			more, err = true, nil
		}
		if err != nil {
			return false, err
		}
		budget -= max(sent, ringStep)
	}
	switch {
	case f.file == nil && done:
		return false, errors.New("the account names no file of the ring")
	case f.file == nil || until <= f.completeTo:
		return done, nil
	}
	f.completeTo = until
	return done, f.send(f.horizon(until))
}

// step sends some blocks, or goes to the next file. It returns how many bytes it sent, and whether there may be more. errRemoved says that
// the file was removed.
func (f *ringFollower) step() (sent int64, more bool, err error) {
	if f.file == nil {
		more, err = f.open()
		return 0, more, err
	}
	// A file is complete before the next one begins, so this is before the size.
	complete := f.h.results.exists(captureconfig.RingFile(f.base, f.number+1))
	size, err := f.size()
	if err != nil {
		return 0, false, err
	}
	end := f.h.recounts.size(f.name, size)
	if err := f.chooseSkipping(end, complete); err != nil {
		return 0, false, err
	}
	send := f.sendBlocks
	if f.skipping {
		send = f.leaveOut
	}
	if sent, err = send(end); sent > 0 || err != nil {
		return sent, true, err
	}
	if !complete {
		f.skipping = false
		return 0, false, nil
	}
	return 0, true, f.next(end)
}

// chooseSkipping begins to leave packets out when a reader of the newest ones is too far behind.
func (f *ringFollower) chooseSkipping(end int64, complete bool) error {
	if !f.newest || f.skipping || !complete && end-f.at <= f.maxLag {
		return nil
	}
	_, after, err := f.h.results.ringAfter(f.base, f.number)
	f.skipping = end-f.at+after > f.maxLag
	return err
}

// sendBlocks sends whole blocks of the file, and returns their length in bytes.
func (f *ringFollower) sendBlocks(end int64) (int64, error) {
	length, packets, err := f.read(end)
	if err != nil || length == 0 {
		return 0, err
	}
	f.sent = time.Now()
	if err := f.send(f.buf[:length]); err != nil {
		return 0, err
	}
	f.at += int64(length)
	f.passed += packets
	if len(f.buf) > ringRead {
		f.buf = make([]byte, ringRead)
	}
	return int64(length), nil
}

// read reads whole blocks. A file is emptied when it is removed, so blocks count only if it had its name afterwards.
func (f *ringFollower) read(end int64) (length int, packets uint64, err error) {
	for {
		n, err := f.file.ReadAt(f.buf[:max(0, min(int64(len(f.buf)), end-f.at))], f.at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, fmt.Errorf("read the file: %w", err)
		}
		if _, err := f.size(); err != nil {
			return 0, 0, err
		}
		length, packets, next := pcapng.CompleteBlocks(f.buf[:n])
		if length > 0 || next <= len(f.buf) || next > maxRingBlock {
			return length, packets, nil
		}
		f.buf = make([]byte, next)
	}
}

// leaveOut sends a gap instead of the packets up to the end of the file, and returns how many bytes it stands for.
func (f *ringFollower) leaveOut(end int64) (int64, error) {
	if f.at >= end {
		return 0, nil
	}
	instead, at, skipErr := f.skip(f.file, f.at, end)
	if _, err := f.size(); err != nil { // the gap may stand for a part of them alone
		return 0, err
	}
	if skipErr != nil {
		return 0, skipErr
	}
	gap, err := pcapng.ParseGap(instead)
	if err != nil || at == f.at {
		return 0, err
	}
	if err := f.send(instead); err != nil {
		return 0, err
	}
	f.at, f.passed = at, f.passed+gap.Packets
	return int64(gap.Bytes), nil
}

// next goes to the next file. What is left of this one is no block, as no probe writes.
func (f *ringFollower) next(end int64) error {
	name := captureconfig.RingFile(f.base, f.number+1)
	file, _, err := f.h.results.open(name)
	if errors.Is(err, errNotServed) {
		return errRemoved
	}
	if err != nil {
		return err
	}
	return f.moveTo(file, name, f.number+1, &pcapng.Gap{Bytes: uint64(max(0, end-f.at)), File: name})
}

// open opens the file that the reader has a part of, or else the oldest file. found is false if the account names none.
func (f *ringFollower) open() (found bool, err error) {
	if f.resume {
		f.resume = false
		file, _, err := f.h.results.open(f.name)
		if err == nil {
			f.file = file
			return true, f.send(pcapng.AppendGap(nil, &pcapng.Gap{File: f.name, At: uint64(f.at)}))
		}
		if !errors.Is(err, errNotServed) {
			return false, err
		}
	}
	for range ringTries {
		a := f.h.progress.newest()
		name, number := f.oldest(a.Files)
		if name == "" {
			return false, nil
		}
		file, _, err := f.h.results.open(name)
		if errors.Is(err, errNotServed) {
			continue // removed since: then there is a newer account
		}
		if err != nil {
			return false, err
		}
		// The file exists, so the account's number is exactly that of the packets before it.
		before := uint64(max(0, a.Overwritten))
		gap := &pcapng.Gap{Packets: before - min(before, f.passed), File: name}
		f.passed = before
		return true, f.moveTo(file, name, number, gap)
	}
	return false, nil
}

// oldest returns the oldest file of the ring that an account names, if it is newer than the last one that was read.
func (f *ringFollower) oldest(files []account.File) (string, uint64) {
	for _, file := range files {
		if base, number, ok := captureconfig.ParseRingFile(file.Name); ok && base == f.base && isServed(file.Name, nil) {
			if number <= f.number {
				return "", 0
			}
			return file.Name, number
		}
	}
	return "", 0
}

// moveTo begins to read a file. The gap before it names the file.
func (f *ringFollower) moveTo(file *os.File, name string, number uint64, gap *pcapng.Gap) error {
	f.close()
	f.file, f.name, f.number, f.at = file, name, number, 0
	return f.send(pcapng.AppendGap(nil, gap))
}

// close closes the file, if one is open: an open file that was removed takes an inode of the volume.
func (f *ringFollower) close() {
	if f.file != nil {
		_ = f.file.Close() // opened for reading
		f.file = nil
	}
}

// exists reports whether the volume has a regular file of a name.
func (r *results) exists(name string) bool {
	_, ok := r.sizeOf(name)
	return ok
}

func (r *results) sizeOf(name string) (int64, bool) {
	var st unix.Stat_t
	err := unix.Fstatat(int(r.dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st.Size, err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// ringAfter returns how many files of a ring have a higher number, and their bytes.
func (r *results) ringAfter(base string, after uint64) (files int, bytes int64, err error) {
	names, err := r.files()
	if err != nil {
		return 0, 0, err
	}
	for _, name := range names {
		if of, number, ok := captureconfig.ParseRingFile(name); !ok || of != base || number <= after {
			continue
		}
		if size, ok := r.sizeOf(name); ok {
			files++
			bytes += size
		}
	}
	return files, bytes, nil
}
