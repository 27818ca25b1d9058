//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// cell is what is to come of a capture.
type cell struct {
	// want is what text makes of the status: one of these, where two things race. None where the fault does not occur.
	want []string
	// goesOn: the fault does not end the capture. It is told to stop afterwards.
	goesOn bool
	// why the fault does not occur at this stage.
	why string
}

func ends(want ...string) cell     { return cell{want: want} }
func survives(want ...string) cell { return cell{want: want, goesOn: true} }
func doesNotOccur(w string) cell   { return cell{why: w} }

// text of what the status says of the one Pod of a capture.
func text(capture sondev1.Capture) string {
	status := capture.CaptureStatus()
	if len(status.Pods) != 1 {
		return fmt.Sprintf("%s with %d entries", status.Phase, len(status.Pods))
	}
	e := status.Pods[0]
	out := fmt.Sprintf("%s (%s)", e.Phase, e.Reason)
	if e.Phase != status.Phase {
		out = fmt.Sprintf("%s, the capture %s", out, status.Phase)
	}
	switch {
	case len(e.Files) > 0:
		out += ", file"
	case e.Phase != sondev1.PhaseFailed:
		out += ", no file"
	}
	return out
}

// judge waits for what is to come of a capture after a fault, has its file judged, and returns what came.
func (s *scene) judge(t *testing.T, st stage, c cell, patience time.Duration) string {
	t.Helper()
	capture := s.captures[st]
	if c.goesOn && st != retained {
		s.awaitFileOrFinal(t, st, patience)
		s.askToStop(t, st)
	}
	err := s.awaitText(t, capture, c.want, patience)
	got := text(capture)
	t.Logf("%s: %s: %+v", st, got, capture.CaptureStatus().Pods)
	if err != nil {
		t.Errorf("%s: %s, want %v: %v", st, got, c.want, capture.CaptureStatus().Pods)
		return got
	}
	cluster.WantEngine(t, capture)
	s.checkFile(t, capture, st)
	if others := slices.DeleteFunc(slices.Clone(c.want), func(w string) bool { return w == got }); len(others) > 0 {
		return got + " (or " + strings.Join(others, ", or ") + ")"
	}
	return got
}

// awaitFileOrFinal waits until the probe is attached, as its file on the node tells, or the capture is over. (The status
// is written by a manager that the fault may have hit.)
func (s *scene) awaitFileOrFinal(t *testing.T, st stage, patience time.Duration) {
	t.Helper()
	capture := s.captures[st]
	status := capture.CaptureStatus()
	cluster.Eventually(t, patience, capture.GetName()+" attached, or over", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture); err != nil {
			return err
		}
		out := cluster.OnNode(t, hurt, "sh", "-c", "ls "+volumes(s.agents[st])+"results/ 2>&1; true")
		if !status.Phase.Final() && !strings.Contains(out, ".pcapng") && !strings.Contains(out, ".ndjson") {
			return fmt.Errorf("%s: %+v, %s", status.Phase, status.Pods, out)
		}
		return nil
	})
}

var errOther = errors.New("still something else")

// awaitText reads a capture until its status says what is wanted, or patience ends.
func (s *scene) awaitText(t *testing.T, capture sondev1.Capture, want []string, patience time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(capture), capture)
		switch {
		case err == nil && slices.Contains(want, text(capture)):
			return nil
		case apierrors.IsNotFound(err):
			return err
		}
		select {
		case <-ctx.Done():
			return errOther
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// checkFile downloads a file: it is valid, its numbers follow on each other, and it holds what the status says.
func (s *scene) checkFile(t *testing.T, capture sondev1.Capture, st stage) {
	t.Helper()
	e := capture.CaptureStatus().Pods[0]
	if len(e.Files) == 0 {
		if e.AvailableUntil != nil {
			t.Errorf("%s: available until %s, without a file", st, e.AvailableUntil)
		}
		return
	}
	if s.refused != "" {
		args := []string{"download", strings.ToLower(capture.KindName()) + "/" + capture.GetName(), "-n", capture.GetNamespace(), "-o", t.TempDir() + "/" + e.Files[0].Name}
		out, err := osexec.CommandContext(t.Context(), cluster.Plugin, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), s.refused) {
			t.Errorf("%s: the download is not refused by %q: %v\n%s", st, s.refused, err, out)
		}
		return
	}
	switch c := capture.(type) {
	case *sondev1.Trace:
		checkTrace(t, c, e.Name)
	case *sondev1.PacketCapture:
		s.checkPackets(t, c, st)
	}
}

func (s *scene) checkPackets(t *testing.T, pc *sondev1.PacketCapture, st stage) {
	t.Helper()
	e := pc.Status.Pods[0]
	got := cluster.Download(t, pc)[e.Name]
	if int64(got.Packets) != e.Packets {
		t.Errorf("%s: %d packets in the file, %d in the status", st, got.Packets, e.Packets)
	}
	if st == retained && got.Packets != packetLimit {
		t.Errorf("%s: %d packets in the file, want the %d of the limit", st, got.Packets, packetLimit)
	}
	if st != starting && got.Packets == 0 {
		t.Errorf("%s: no packet in the file", st)
	}
	s.numbers[st], s.dropped[st] = got.Numbers, uint64(e.Dropped.Total()) //nolint:gosec // a count
	for run, numbers := range got.Numbers {
		for n, times := range numbers {
			if times != 1 {
				t.Errorf("%s: number %d of run %d is there %d times", st, n, run, times)
			}
		}
	}
}

// compareNumbers looks for gaps in what captures of the one target saw: what is missing between a file's first and last
// number was dropped. Where the Pod's network is taken down, what another capture saw as little did not get there.
func (s *scene) compareNumbers(t *testing.T, networkDown bool) {
	t.Helper()
	for st, mine := range s.numbers {
		missing := uint64(0)
		for run, numbers := range mine {
			low, high := bounds(numbers)
			for n := low; n < high; n++ {
				if numbers[n] == 0 && (!networkDown || !s.neverCame(st, run, n)) {
					missing++
				}
			}
		}
		// The last ones that were dropped leave no gap.
		if missing > s.dropped[st] {
			t.Errorf("%s: %d packets are missing in the file, the status says %d were dropped", st, missing, s.dropped[st])
		}
	}
}

// neverCame tells whether another capture that ran at the time has not seen a number either.
func (s *scene) neverCame(but stage, run uint32, n uint64) bool {
	for other, theirs := range s.numbers {
		if low, high := bounds(theirs[run]); other != but && low < n && n < high && theirs[run][n] == 0 {
			return true
		}
	}
	return false
}

func bounds(numbers map[uint64]int) (low, high uint64) {
	low = ^uint64(0)
	for n := range numbers {
		low, high = min(low, n), max(high, n)
	}
	return low, high
}
