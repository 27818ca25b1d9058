package main

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

	"github.com/sonde-operator/sonde/agents/trace"
)

// recordsReady is what a reader of records says when every further call is recorded or counted.
const recordsReady = "recording"

// recordsRead is what it says at its end.
type recordsRead struct {
	Written int   `json:"written"`
	Lost    int   `json:"lost"`
	Size    int64 `json:"size"`
}

// runRecords reads the binary records of a group of calls, with the bytes of rings that it is given, and writes them to
// a file: the tracer without the text. It ends when it is interrupted.
func runRecords(args []string) error {
	ring, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("read the size of rings: %w", err)
	}
	f, err := os.Create(args[2])
	if err != nil {
		return fmt.Errorf("make the records' file: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := &recordsFile{f: f}
	t, err := trace.Open(&trace.Config{PodUID: podUID, Groups: []trace.Group{trace.Group(args[0])}, RingBytes: ring, Out: out, Binary: true})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	fmt.Fprintln(os.Stderr, recordsReady)
	res := t.Run(ctx)
	if err := errors.Join(res.Err, out.check(res.Account.Written), f.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(recordsRead{Written: int(res.Account.Written), Lost: int(res.Account.Lost()), Size: out.size})
}

// recordsFile is a trace.Sink of binary records.
type recordsFile struct {
	f    *os.File
	size int64
}

// Write appends records. What they are is looked at when all are there.
func (r *recordsFile) Write(records []byte, events int) (written int, err error) {
	n, err := r.f.Write(records)
	r.size += int64(n)
	if err != nil {
		return 0, fmt.Errorf("write records: %w", err)
	}
	return events, nil
}

var errRecord = errors.New("a record is longer than what is left, or has no length")

// check counts the file's records, by their lengths with which they begin.
func (r *recordsFile) check(want uint64) error {
	if _, err := r.f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	n, err := countRecords(bufio.NewReaderSize(r.f, 1<<20))
	if err == nil && n != want {
		err = fmt.Errorf("%d records are in the file, which were said to be %d", n, want)
	}
	return err
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
