package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
	"github.com/sonde-operator/sonde/internal/wire/pcapng"
)

// fileSuffix is the end of every file's name.
const fileSuffix = ".pcapng"

// file is one file of a capture.
type file struct {
	path  string
	size  uint64     // bytes of whole blocks, pending ones included
	start uint64     // time of its creation, in nanoseconds since 1970
	parts []Counters // by interface: its packets in this file

	fixed uint64   // the end of the last block that is not a packet
	marks []uint64 // starts of some packets after fixed
}

// current is the file to which packets are written.
func (r *Recorder) current() *file { return r.files[len(r.files)-1] }

// path returns the path of the next file.
func (r *Recorder) path() string {
	name := r.cfg.Base + fileSuffix
	if r.cfg.Rotate != nil {
		name = captureconfig.RingFile(r.cfg.Base, r.removed+uint64(len(r.files))+1)
	}
	return filepath.Join(r.cfg.Dir, name)
}

// headerLen is the length of a file without packets: the section, and the description and statistics of each interface.
func (r *Recorder) headerLen() uint64 {
	n := uint64(len(pcapng.AppendSection(nil, &r.cfg.Section)))
	for _, i := range r.interfaces {
		n += uint64(len(i.desc)) + statisticsLen
	}
	return n
}

// begin creates a file that describes all interfaces. The file gets its name when the description is written. So even
// if the process is killed, each file with a name can be read.
func (r *Recorder) begin() error {
	path := r.path()
	header := pcapng.AppendSection(nil, &r.cfg.Section)
	for _, i := range r.interfaces {
		header = append(header, i.desc...)
	}
	switch most := uint64(r.cfg.MaxBytes); {
	case r.cfg.Rotate != nil && uint64(len(header)) > uint64(r.cfg.Rotate.MaxBytes)/2:
		return fmt.Errorf("start capture file: its description has %d bytes, more than half of a file of the ring: raise the size of the files", len(header))
	case most > 0 && uint64(len(header)) > most:
		return fmt.Errorf("start capture file: the limit of %d bytes is less than its header: raise the limit", most)
	}
	if r.cfg.DiskFloor != nil {
		above, err := r.disk(uint64(len(header)))
		if err == nil && above < uint64(len(header)) {
			err = r.fullError()
		}
		if err != nil {
			return err
		}
	}
	out, err := r.create(path, r.cfg.FileMode)
	if err != nil {
		return err
	}
	if _, err = out.Writev([][]byte{header}); err == nil {
		err = out.Flush()
	}
	if err == nil {
		err = disk.Place(path)
	}
	if err != nil {
		return errors.Join(err, out.Close(), disk.Discard(path))
	}
	r.out = out
	r.files = append(r.files, &file{
		path: path, size: uint64(len(header)), fixed: uint64(len(header)), start: uint64(time.Now().UnixNano()), parts: make([]Counters, len(r.interfaces)),
	})
	return nil
}

// rotate ends the current file and begins the next. If the ring is full, it removes the oldest first. The order keeps
// the published account true if the process is killed in between: the account names no missing file, and each file with
// packets is named.
func (r *Recorder) rotate() error {
	if r.out != nil {
		// If the file has no room for its statistics it stays open: Finish cuts packets to make room.
		if err := r.sync(); err != nil {
			return err
		}
		if err := r.writeStatistics(); err != nil {
			return err
		}
		if err := r.Close(); err != nil {
			return err
		}
		r.earlier += r.current().size
	}
	if len(r.files) == r.cfg.Rotate.Files {
		oldest := r.files[0]
		r.forget(oldest)
		r.announce()
		if err := removeFile(oldest.path); err != nil {
			return err
		}
	}
	if err := r.begin(); err != nil {
		return err
	}
	for _, i := range r.interfaces {
		i.start = i.Account.Counters
	}
	r.announce()
	return nil
}

// forget subtracts the oldest file from the account: its packets are overwritten.
func (r *Recorder) forget(oldest *file) {
	r.files = r.files[1:]
	r.removed++
	for i := range oldest.parts {
		a := &r.interfaces[i].Account
		a.overwrite(&oldest.parts[i])
		for _, f := range r.files {
			if i < len(f.parts) {
				a.span(f.parts[i].FirstPacket, f.parts[i].LastPacket)
			}
		}
	}
}

// announce publishes the account before it returns.
func (r *Recorder) announce() {
	r.Publish()
	if r.cfg.FilesChanged != nil {
		r.cfg.FilesChanged()
	}
}

// removeFile removes a file and frees its space at once, even if it is still open for reading.
func removeFile(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("remove the oldest capture file: %w", err)
	}
	if err := errors.Join(os.Remove(path), f.Truncate(0), f.Close()); err != nil {
		return fmt.Errorf("remove the oldest capture file: %w", err)
	}
	return nil
}

// writeStatistics ends the current file with one block per interface.
func (r *Recorder) writeStatistics() error {
	t := uint64(time.Now().UnixNano())
	var b []byte
	for _, i := range r.interfaces {
		st := i.statistics(r.current().start, t, &r.current().parts[i.ID])
		b = pcapng.AppendStatistics(b, &st)
	}
	if len(b) == 0 {
		return nil
	}
	return r.append(b)
}
