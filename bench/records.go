package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
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
	if err := errors.Join(res.Err, f.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(recordsRead{Written: int(res.Account.Written), Lost: int(res.Account.Lost()), Size: out.size})
}

// recordsFile is a trace.Sink of binary records.
type recordsFile struct {
	f    *os.File
	size int64
}

var errRecord = errors.New("a record is longer than what is left, or has no length")

// Write counts records by their lengths, with which they begin.
func (r *recordsFile) Write(records []byte, _ int) (events int, err error) {
	n, err := r.f.Write(records)
	r.size += int64(n)
	if err != nil {
		return 0, fmt.Errorf("write records: %w", err)
	}
	for b := records; len(b) > 0; events++ {
		size := int(binary.NativeEndian.Uint32(b))
		if size == 0 || size > len(b) {
			return events, errRecord
		}
		b = b[size:]
	}
	return events, nil
}
