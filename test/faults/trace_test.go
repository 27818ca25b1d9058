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

// numbersPath is the prefix of the files that the caller opens. A run and a number follow.
const numbersPath = "/dev/shm/number"

// checkTrace downloads a trace and checks its file. It has complete lines, as many events as the status says, and an
// account at its end unless its probe was killed. The numbered calls have no gaps except for those counted as lost.
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
		t.Errorf("%s: header %+v, want the Pod and its UID", tr.Name, header)
	}
	if events != e.Events || calls.count == 0 {
		t.Errorf("%s: got %d events in the file, %d of them numbered; want %d as in the status", tr.Name, events, calls.count, e.Events)
	}
	switch {
	case e.Reason == sondev1.ReasonKilled:
		if end != nil {
			t.Errorf("%s: a killed probe has written an account: %+v", tr.Name, end)
		}
	case end == nil || end.Complete != (e.Phase == sondev1.PhaseCompleted) || end.Reason != e.Reason || int64(end.Written) != events: //nolint:gosec // a count
		t.Errorf("%s: the file ends with %+v, want an account that agrees with the status", tr.Name, end)
	}
	if calls.missing > uint64(e.LostEvents()) { //nolint:gosec // a count
		t.Errorf("%s: %d calls are missing between the first and the last, want at most those lost in the status %v", tr.Name, calls.missing, e.Lost)
	}
}

// sequence tracks the numbered calls of one run.
type sequence struct {
	run            string
	next           uint64
	count, missing uint64
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
		t.Errorf("the caller opened %q, want a run and a number in the name", r.Path)
		return
	case s.count == 0:
		s.run = run
	case run != s.run:
		t.Errorf("the caller was restarted: got runs %s and %s, want one", s.run, run)
	case n < s.next:
		t.Errorf("got number %d again or late, want %d or higher", n, s.next)
	default:
		s.missing += n - s.next
	}
	s.next, s.count = n+1, s.count+1
}
