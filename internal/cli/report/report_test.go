package report

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

var errNoRight = errors.New(`create a ResultAccess: User "bob" cannot create resource "resultaccesses"`)

var update = flag.Bool("update", false, "rewrite the golden files")

func ended(phase v1alpha1.Phase, reason, message string) *v1alpha1.PacketCapture {
	pc := &v1alpha1.PacketCapture{}
	pc.Namespace, pc.Name = "shop", "web-x7k2p"
	pc.Status = v1alpha1.CaptureStatus{
		Phase: phase, JobID: "qwer", Target: "Deployment/web",
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionComplete, Reason: reason, Message: message}},
	}
	return pc
}

func many() *v1alpha1.PacketCapture {
	pc := ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, "")
	pc.Status.Totals.Pods = 3
	return pc
}

// traced returns a trace that ended like a capture.
func traced(pc *v1alpha1.PacketCapture) *v1alpha1.Trace {
	return &v1alpha1.Trace{ObjectMeta: pc.ObjectMeta, Status: pc.Status}
}

func wholeTrace() v1alpha1.PodResult {
	return v1alpha1.PodResult{
		UID: "u1", Name: "web-6d9f7c5b8-4xk2p", Node: "worker-1", Phase: v1alpha1.PhaseCompleted, Reason: v1alpha1.ReasonDuration,
		Events: 1234, Bytes: 1300000,
	}
}

func killedTrace() v1alpha1.PodResult {
	return v1alpha1.PodResult{
		UID: "u2", Name: "web-6d9f7c5b8-zz9qd", Node: "worker-2", Phase: v1alpha1.PhaseIncomplete, Reason: v1alpha1.ReasonKilled,
		Message: "the probe ended with exit code 137", Events: 10, Bytes: 1000, Lost: map[string]int64{"ring": 2, "rare": 1},
	}
}

func whole() v1alpha1.PodResult {
	return v1alpha1.PodResult{
		UID: "u1", Name: "web-6d9f7c5b8-4xk2p", Node: "worker-1", Phase: v1alpha1.PhaseCompleted, Reason: v1alpha1.ReasonDuration,
		Packets: 1234, Bytes: 1300000, Truncated: 2,
	}
}

func killed() v1alpha1.PodResult {
	return v1alpha1.PodResult{
		UID: "u2", Name: "web-6d9f7c5b8-zz9qd", Node: "worker-2", Phase: v1alpha1.PhaseIncomplete, Reason: v1alpha1.ReasonKilled,
		Message: "the probe ended with exit code 137", Packets: 10, Bytes: 1000, Dropped: v1alpha1.Dropped{Kernel: 1, Ring: 2, Writer: 4},
	}
}

func failed() v1alpha1.PodResult {
	return v1alpha1.PodResult{UID: "u3", Name: "web-6d9f7c5b8-aaaaa", Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonHostNetworkDenied}
}

func savedFile(p v1alpha1.PodResult, err error) capture.SavedFile {
	f := capture.SavedFile{Pod: p, Name: p.Name + "-qwer.pcapng", Bytes: 4096, Err: err}
	if err != nil {
		f.Bytes = 0
	}
	return f
}

func saved(files ...capture.SavedFile) capture.Saved {
	return capture.Saved{Path: "web.pcapng", Bytes: 5000, Files: files}
}

// A capture may have more Pods than its status lists. While one of the others has a result that was not saved, the plugin must not
// delete the capture.
func TestUnlistedPodsAreNotSaved(t *testing.T) {
	listed := whole()
	listed.Job = "web-6d9f7c5b8-4xk2p-qwer"
	status := func(pods int32, list ...v1alpha1.PodResult) *v1alpha1.PacketCapture {
		pc := ended(v1alpha1.PhaseIncomplete, v1alpha1.ReasonSomePodsIncomplete, "")
		pc.Status.Pods, pc.Status.PodsOmitted, pc.Status.Totals.Pods = list, 1, pods
		return pc
	}
	// The connection broke just before the end, so the last that the plugin knows of this Pod is that it was captured.
	running := v1alpha1.PodResult{UID: "u9", Name: "web-6d9f7c5b8-zzzzz", Phase: v1alpha1.PhaseCapturing, Packets: 7}
	r := New(status(2, listed), []v1alpha1.PodResult{listed, running}, saved(savedFile(listed, nil)))
	if r.Complete || r.AllSaved() {
		t.Errorf("complete %t, everything saved: %t, want neither", r.Complete, r.AllSaved())
	}
	// A Pod that waited for a ceiling until the end had no Job: it takes a place in the list, and is no Pod of the totals.
	waited := failed()
	waited.Reason = v1alpha1.ReasonCeilingPods
	pc := status(2, waited, listed)
	r = New(pc, pc.Status.Pods, saved(savedFile(listed, nil)))
	if r.AllSaved() || !strings.Contains(strings.Join(r.Problems, "\n"), "1 more Pods were captured") {
		t.Errorf("everything saved: %t; problems %q do not mention the unlisted Pod", r.AllSaved(), r.Problems)
	}
}

func TestReport(t *testing.T) {
	tests := map[string]struct {
		pc             v1alpha1.Capture
		pods           []v1alpha1.PodResult
		saved          capture.Saved
		wantCode       int
		wantEverything bool
	}{
		"complete": {
			pc: ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), pods: []v1alpha1.PodResult{whole()},
			saved: saved(savedFile(whole(), nil)), wantCode: ExitOK, wantEverything: true,
		},
		"incomplete": {
			pc: ended(v1alpha1.PhaseIncomplete, v1alpha1.ReasonSomePodsIncomplete, ""), pods: []v1alpha1.PodResult{whole(), killed()},
			saved: saved(savedFile(whole(), nil), savedFile(killed(), nil)), wantCode: ExitIncomplete, wantEverything: true,
		},
		"a-pod-without-a-result": {
			pc: ended(v1alpha1.PhaseIncomplete, v1alpha1.ReasonSomePodsIncomplete, ""), pods: []v1alpha1.PodResult{failed(), whole()},
			saved: saved(savedFile(whole(), nil)), wantCode: ExitIncomplete, wantEverything: true,
		},
		"a-file-of-which-nothing-is-known": {
			pc: ended(v1alpha1.PhaseIncomplete, v1alpha1.ReasonSomePodsIncomplete, ""), pods: []v1alpha1.PodResult{killed(), whole()},
			saved: saved(savedFile(whole(), nil)), wantCode: ExitIncomplete, wantEverything: false,
		},
		"a-file-that-did-not-come": {
			pc: ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), pods: []v1alpha1.PodResult{whole()},
			saved: saved(savedFile(whole(), errors.New("download web.pcapng: gone"))), wantCode: ExitIncomplete, wantEverything: false,
		},
		"a-right-that-the-user-lacks": {
			pc: ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), pods: []v1alpha1.PodResult{whole(), killed()},
			saved: capture.Saved{Files: []capture.SavedFile{
				savedFile(whole(), fmt.Errorf("download a.pcapng: %w", errNoRight)), savedFile(killed(), fmt.Errorf("download b.pcapng: %w", errNoRight)),
			}},
			wantCode: ExitError, wantEverything: false,
		},
		"more-pods-than-the-status-lists": {
			pc: many(), pods: []v1alpha1.PodResult{whole()},
			saved: saved(savedFile(whole(), nil)), wantCode: ExitIncomplete, wantEverything: false,
		},
		"nothing-saved": {
			pc:       ended(v1alpha1.PhaseFailed, v1alpha1.ReasonTargetNotFound, "there is no Deployment web in namespace shop"),
			wantCode: ExitError, wantEverything: true,
		},
		"trace": {
			pc: traced(ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, "")), pods: []v1alpha1.PodResult{wholeTrace()},
			saved: saved(savedFile(wholeTrace(), nil)), wantCode: ExitOK, wantEverything: true,
		},
		"trace-incomplete": {
			pc: traced(ended(v1alpha1.PhaseIncomplete, v1alpha1.ReasonSomePodsIncomplete, "")), pods: []v1alpha1.PodResult{wholeTrace(), killedTrace()},
			saved: saved(savedFile(wholeTrace(), nil), savedFile(killedTrace(), nil)), wantCode: ExitIncomplete, wantEverything: true,
		},
		"trace-failed": {
			pc:       traced(ended(v1alpha1.PhaseFailed, v1alpha1.ReasonTargetNotFound, "there is no Deployment web in namespace shop")),
			wantCode: ExitError, wantEverything: true,
		},
		"standard-output-and-late-packets": {
			pc: ended(v1alpha1.PhaseCompleted, v1alpha1.ReasonEnded, ""), pods: []v1alpha1.PodResult{whole()},
			saved:    capture.Saved{Path: "-", Bytes: 100, Late: 3, Files: []capture.SavedFile{savedFile(whole(), nil)}},
			wantCode: ExitOK, wantEverything: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := New(tc.pc, tc.pods, tc.saved)
			golden(t, name+".txt", r.Text())
			b, err := json.MarshalIndent(r, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", string(b)+"\n")
			if code := r.ExitCode(); code != tc.wantCode {
				t.Errorf("exit code %d, want %d", code, tc.wantCode)
			}
			if got := r.AllSaved(); got != tc.wantEverything {
				t.Errorf("everything saved: %t, want %t", got, tc.wantEverything)
			}
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// A probe's message can hold an interface name that the captured Pod chose.
func TestNoControlCharacters(t *testing.T) {
	const evil = "attach to \x1b]0;pwned\x07\x1b[2J\u202e\nSaved to all.pcapng"
	pc := &v1alpha1.PacketCapture{Status: v1alpha1.CaptureStatus{Phase: v1alpha1.PhaseFailed}}
	r := New(pc, []v1alpha1.PodResult{{Name: "web-1", Node: evil, Phase: v1alpha1.PhaseFailed, Reason: evil, Message: evil}}, capture.Saved{})
	r.Notes = append(r.Notes, evil)
	for _, c := range r.Text() {
		if c != '\n' && !unicode.IsPrint(c) {
			t.Fatalf("%q reaches the terminal:\n%q", c, r.Text())
		}
	}
	if lines := strings.Count(r.Text(), "\n"); lines != 6 {
		t.Errorf("%d lines, want 6:\n%s", lines, r.Text())
	}
}
