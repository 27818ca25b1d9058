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

// cell is the promised result of a capture.
type cell struct {
	// want lists the accepted values of text; there are several where two events race, and none if the fault does not
	// occur.
	want []string
	// goesOn says that the fault does not end the capture. The test stops it afterwards.
	goesOn bool
	// why the fault does not occur at this stage.
	why string
}

func ends(want ...string) cell     { return cell{want: want} }
func survives(want ...string) cell { return cell{want: want, goesOn: true} }
func doesNotOccur(w string) cell   { return cell{why: w} }

// text summarises the status of the one Pod of a capture.
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

// judge waits for the promised result of a capture after a fault, checks its file, and returns the result.
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
		t.Errorf("%s: got %s, want one of %v: %v", st, got, c.want, capture.CaptureStatus().Pods)
		return got
	}
	cluster.WantEngine(t, capture)
	s.checkFile(t, capture, st)
	if others := slices.DeleteFunc(slices.Clone(c.want), func(w string) bool { return w == got }); len(others) > 0 {
		return got + " (or " + strings.Join(others, ", or ") + ")"
	}
	return got
}

// awaitFileOrFinal waits until the probe is attached, according to its file on the node, or the capture has ended. (The
// fault may have hit the manager that writes the status.)
func (s *scene) awaitFileOrFinal(t *testing.T, st stage, patience time.Duration) {
	t.Helper()
	capture := s.captures[st]
	status := capture.CaptureStatus()
	cluster.Eventually(t, patience, capture.GetName()+" attached, or ended", func(ctx context.Context) error {
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

var errOther = errors.New("the status is not yet as promised")

// awaitText reads a capture until its status is as promised, or the time is over.
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

// checkFile downloads a file. The file is valid, its numbers follow each other, and it agrees with the status.
func (s *scene) checkFile(t *testing.T, capture sondev1.Capture, st stage) {
	t.Helper()
	e := capture.CaptureStatus().Pods[0]
	if len(e.Files) == 0 {
		if e.AvailableUntil != nil {
			t.Errorf("%s: the status says available until %s, but lists no file", st, e.AvailableUntil)
		}
		return
	}
	if s.refused != "" {
		args := []string{"download", strings.ToLower(capture.KindName()) + "/" + capture.GetName(), "-n", capture.GetNamespace(), "-o", t.TempDir() + "/" + e.Files[0].Name}
		out, err := osexec.CommandContext(t.Context(), cluster.Plugin, args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), s.refused) {
			t.Errorf("%s: want the download refused with %q, got %v\n%s", st, s.refused, err, out)
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
		t.Errorf("%s: got %d packets in the file, want %d as in the status", st, got.Packets, e.Packets)
	}
	if st == retained && got.Packets != packetLimit {
		t.Errorf("%s: got %d packets in the file, want the %d of the limit", st, got.Packets, packetLimit)
	}
	if st != starting && got.Packets == 0 {
		t.Errorf("%s: got no packet in the file", st)
	}
	s.numbers[st], s.dropped[st] = got.Numbers, uint64(e.Dropped.Total()) //nolint:gosec // a count
	for run, numbers := range got.Numbers {
		for n, times := range numbers {
			if times != 1 {
				t.Errorf("%s: got number %d of run %d %d times, want once", st, n, run, times)
			}
		}
	}
}

// compareNumbers looks for gaps in the captures of the one target. Numbers missing between a file's first and last must
// have been dropped. If the Pod's network was taken down, a number that no other capture has either never arrived.
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
		// Dropped packets at the end leave no gap.
		if missing > s.dropped[st] {
			t.Errorf("%s: %d packets are missing in the file, want at most the %d dropped in the status", st, missing, s.dropped[st])
		}
	}
}

// neverCame reports whether the other captures of that time lack the number too.
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
