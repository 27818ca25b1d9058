//go:build faults

package faults

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/tracefmt"
	"github.com/sonde-operator/sonde/test/cluster"
)

// numbersPath is what the names of the files begin with that the caller asks for. A run and a number follow.
const numbersPath = "/dev/shm/number"

// checkTrace downloads a trace: it has whole lines only, as many events as the status says, an account at its end unless
// its probe was killed, and the calls of the Pod follow on each other, but for as many as were counted as lost.
func checkTrace(t *testing.T, tr *sondev1.Trace, pod string) {
	t.Helper()
	e := cluster.Entry(t, tr, pod)
	f, err := os.Open(cluster.DownloadFiles(t, tr, ".ndjson")[pod])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var header *tracefmt.Header
	var end *tracefmt.Account
	events, calls := int64(0), sequence{}
	for r := tracefmt.NewReader(f); ; {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: after %d events: %v", tr.Name, events, err)
		}
		switch {
		case line.Header != nil:
			header = line.Header
		case line.Account != nil:
			end = line.Account
		case line.Record != nil:
			events++
			calls.add(t, line.Record)
		}
	}
	if header == nil || header.Pod != pod || header.PodUID != e.UID {
		t.Errorf("%s: header %+v", tr.Name, header)
	}
	if events != e.Events || calls.seen == 0 {
		t.Errorf("%s: %d events in the file, %d of them numbered; %d in the status", tr.Name, events, calls.seen, e.Events)
	}
	switch {
	case e.Reason == sondev1.ReasonKilled:
		if end != nil {
			t.Errorf("%s: a probe that was killed has written its account: %+v", tr.Name, end)
		}
	case end == nil || end.Complete != (e.Phase == sondev1.PhaseCompleted) || end.Reason != e.Reason || int64(end.Written) != events: //nolint:gosec // a count
		t.Errorf("%s: the file ends with %+v", tr.Name, end)
	}
	if calls.missing > uint64(e.LostEvents()) { //nolint:gosec // a count
		t.Errorf("%s: %d calls are missing between the first and the last, the status says lost %v", tr.Name, calls.missing, e.Lost)
	}
}

// sequence is what was seen of the numbered calls of one run.
type sequence struct {
	run           string
	next          uint64
	seen, missing uint64
}

func (s *sequence) add(t *testing.T, r *tracefmt.Record) {
	t.Helper()
	of, ok := strings.CutPrefix(string(r.Path), numbersPath+"-")
	if !ok || r.Container != caller || r.Call != "openat" {
		return
	}
	run, text, _ := strings.Cut(of, "-")
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil:
		t.Errorf("a file of the caller's is %q", r.Path)
		return
	case s.seen == 0:
		s.run = run
	case run != s.run:
		t.Errorf("the caller was started again: runs %s and %s", s.run, run)
	case n < s.next:
		t.Errorf("number %d comes again, or late: %d was next", n, s.next)
	default:
		s.missing += n - s.next
	}
	s.next, s.seen = n+1, s.seen+1
}
