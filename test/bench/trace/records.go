package trace

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"

	"github.com/sonde-operator/sonde/agents/node/disk"
	"github.com/sonde-operator/sonde/agents/trace"
	"github.com/sonde-operator/sonde/agents/trace/decode"
	"github.com/sonde-operator/sonde/test/bench/host"
)

// recordsReady is printed by a reader of records when every following call is recorded or counted.
const recordsReady = "recording"

// recordsRead is the report of a reader of records.
type recordsRead struct {
	Written int   `json:"written"`
	Lost    int   `json:"lost"`
	Size    int64 `json:"size"`
}

// runRecords is the tracer without encoding: it writes the binary records of a group of calls to a file until it is
// interrupted. The arguments are the group, the size of the rings in bytes, and the file.
func runRecords(args []string) error {
	ring, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("read the size of rings: %w", err)
	}
	out, err := newRecordsFile(args[2])
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	t, err := trace.Open(&trace.Config{PodUID: host.PodUID, Groups: []decode.Group{decode.Group(args[0])}, RingBytes: ring, Out: out, Binary: true})
	if err != nil {
		return errors.Join(err, out.Close())
	}
	fmt.Fprintln(os.Stderr, recordsReady)
	res := t.Run(ctx)
	if err := errors.Join(res.Err, out.Close(), checkRecords(args[2], res.Account.Written)); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(recordsRead{Written: int(res.Account.Written), Lost: int(res.Account.Lost()), Size: out.Size()})
}

// recordsFile is an output.Sink that writes binary records as a trace writes lines.
type recordsFile struct{ *disk.Appender }

func newRecordsFile(path string) (*recordsFile, error) {
	f, err := disk.Create(path, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make the records' file: %w", err)
	}
	out, err := disk.NewAppender(f)
	if err == nil {
		err = disk.Place(path)
	}
	if err != nil {
		return nil, fmt.Errorf("make the records' file: %w", err)
	}
	return &recordsFile{out}, nil
}

// Write appends records. They are checked at the end.
func (r *recordsFile) Write(records []byte, events int) (taken int, err error) {
	if _, err := r.Append(records); err != nil {
		return 0, fmt.Errorf("write records: %w", err)
	}
	return events, nil
}

func (r *recordsFile) Flush(wait bool) error {
	flush := r.Push
	if wait {
		flush = r.Appender.Flush
	}
	if err := flush(); err != nil {
		return fmt.Errorf("write records: %w", err)
	}
	return nil
}

// Pending is only used when a trace fails.
func (*recordsFile) Pending() uint64 { return 0 }

var errRecord = errors.New("a record is longer than the rest of the file, or has no length")

// checkRecords counts the records of the file. Each begins with its length.
func checkRecords(path string, want uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	n, err := countRecords(bufio.NewReaderSize(f, 1<<20))
	if err == nil && n != want {
		err = fmt.Errorf("the file has %d records, want %d", n, want)
	}
	return errors.Join(err, f.Close())
}

func countRecords(from *bufio.Reader) (n uint64, err error) {
	for ; ; n++ {
		head, err := from.Peek(4)
		if len(head) == 0 && errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, errRecord
		}
		size := binary.NativeEndian.Uint32(head)
		if size == 0 {
			return n, errRecord
		}
		if _, err := from.Discard(int(size)); err != nil {
			return n, errRecord
		}
	}
}
