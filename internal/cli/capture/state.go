package capture

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/cli/results"
	"github.com/sonde-operator/sonde/internal/wire/account"
	"github.com/sonde-operator/sonde/internal/wire/duration"
)

// operatorTimeout is how long a capture may have no status before the user is asked to check the operator.
const operatorTimeout = 15 * time.Second

// maxPodNotes is the largest number of notes of one kind about single Pods.
const maxPodNotes = 3

// State combines the status of a capture with its live counts, which are never written to the status.
type State struct {
	// Capture as last observed.
	Capture v1alpha1.Capture
	// ProgressError says why there are no live counts; empty while there are.
	ProgressError string
	// Activity replaces the status in the heading, like "Merging".
	Activity string

	since       time.Time
	gatingSince time.Time // when new Pods were first observed to wait
	updates     map[string]results.Update
	downloads   map[string]string
}

// NewState returns the state of a capture that is followed from the time now.
func NewState(c v1alpha1.Capture, now time.Time) *State {
	return &State{Capture: c, since: now, updates: map[string]results.Update{}, downloads: map[string]string{}}
}

// Update applies a line of the progress stream.
func (s *State) Update(u results.Update) {
	s.ProgressError = ""
	if u.Account == nil { // keep the last counts
		u.Account = s.updates[u.UID].Account
	}
	s.updates[u.UID] = u
}

// Downloading shows the progress of a Pod's download. done and total are in bytes; total is -1 if it is unknown.
func (s *State) Downloading(uid string, done, total int64) {
	text := "Downloading " + live.Bytes(done)
	if total > 0 {
		text = fmt.Sprintf("Downloading %d%%", done*100/total)
	}
	if total >= 0 && done == total {
		text = "Downloaded"
	}
	s.downloads[uid] = text
}

// Ended reports whether the capture has ended.
func (s *State) Ended() bool { return s.Capture.CaptureStatus().Phase.Final() }

// Pods returns all Pods of the status and of the live counts, sorted by name. A final entry of the status stays as it
// is; others get the newer counts.
func (s *State) Pods() []v1alpha1.PodResult {
	listed := s.Capture.CaptureStatus().Pods
	pods := make(map[string]v1alpha1.PodResult, len(listed))
	for _, p := range listed {
		pods[p.UID] = p
	}
	for uid, u := range s.updates {
		p, known := pods[uid]
		if p.Phase.Final() {
			continue
		}
		if !known {
			p = v1alpha1.PodResult{UID: uid, Name: u.Pod, Node: u.Node}
		}
		pods[uid] = overlay(p, u)
	}
	return slices.SortedFunc(maps.Values(pods), func(a, b v1alpha1.PodResult) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UID, b.UID))
	})
}

// overlay applies live counts to a status entry that is not final.
func overlay(p v1alpha1.PodResult, u results.Update) v1alpha1.PodResult {
	if u.Phase != "" && u.Phase != p.Phase { // the reason belonged to the old phase
		p.Phase, p.Reason, p.Message = u.Phase, "", ""
	}
	a := u.Account
	if a == nil || a.Seen < p.Packets+p.Overwritten+p.Dropped.Total()+p.Events+p.LostEvents() {
		return p
	}
	p.Packets, p.Bytes, p.Truncated, p.Overwritten = a.Packets, a.Bytes, a.Truncated, a.Overwritten
	p.Dropped = v1alpha1.Dropped{Kernel: a.DroppedKernel, Ring: a.DroppedRing, Writer: a.DroppedWriter}
	p.Events, p.Lost = a.Events, a.Lost
	if n := a.Processes; n != nil {
		p.Processes = &v1alpha1.ProcessCounts{Named: n.Named, None: n.None, Unknown: n.Unknown, Message: n.Message}
	}
	p.Engine, p.EngineMessage = cmp.Or(a.Engine, p.Engine), cmp.Or(a.EngineMessage, p.EngineMessage)
	p.Reason = cmp.Or(a.Reason, p.Reason)
	p.Message = cmp.Or(a.Message, p.Message)
	if a.State == account.StateDone {
		p.Files = nil
		for _, f := range a.Files {
			p.Files = append(p.Files, v1alpha1.ResultFile{Name: f.Name, Bytes: f.Bytes})
		}
	}
	return p
}

// View returns the view of the state at the time now.
func (s *State) View(now time.Time) live.View {
	t := traitsOf(s.Capture)
	v := live.View{Title: s.title(), Status: cmp.Or(s.Activity, s.status()), Clock: s.clock(now), Unit: t.unit}
	for _, p := range s.Pods() {
		count, lost := t.counts(p)
		v.Pods = append(v.Pods, live.Pod{
			Name: p.Name, Node: p.Node, State: cmp.Or(s.downloads[p.UID], podState(p)), Count: count, Bytes: p.Bytes, Lost: lost,
		})
	}
	if n := s.Capture.CaptureStatus().PodsOmitted; n > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%d Pods of this capture do not fit into its status.", n))
	}
	if c := s.waiting(); c != nil {
		v.Notes = append(v.Notes, c.Message)
	}
	v.Notes = append(v.Notes, s.pendingNotes()...)
	v.Notes = append(v.Notes, s.gate(now)...)
	if !s.Ended() {
		v.Notes = append(v.Notes, s.progressNotes()...)
	}
	if s.Capture.CaptureStatus().Phase == "" && now.Sub(s.since) >= operatorTimeout {
		v.Notes = append(v.Notes, "No answer from the operator yet: check that its Pod is running.")
	}
	return v
}

// pendingNotes says why Pods are not captured yet, if that is known. Pods that wait for the same have one note.
func (s *State) pendingNotes() []string {
	var notes []string
	noted := map[string]bool{}
	for _, p := range s.Pods() {
		if p.Phase == v1alpha1.PhasePending && p.Message != "" && !noted[p.Message] {
			noted[p.Message] = true
			notes = append(notes, p.Name+" is Pending: "+p.Message)
		}
	}
	return notes[:min(len(notes), maxPodNotes)]
}

// progressNotes says why live counts are missing, for all Pods or for single ones.
func (s *State) progressNotes() []string {
	if s.ProgressError != "" {
		return []string{"Live counts are not available: " + explainProgressError(s.ProgressError)}
	}
	var notes []string
	for _, u := range s.updates {
		if u.Error != "" && !u.Phase.Final() {
			notes = append(notes, fmt.Sprintf("Live counts are not available for %s: %s", u.Pod, explainProgressError(u.Error)))
		}
	}
	slices.Sort(notes)
	return notes[:min(len(notes), maxPodNotes)]
}

func (s *State) title() string {
	target := s.Capture.CaptureStatus().Target
	if ref := s.Capture.Common().Target; target == "" && ref.Name != "" {
		target = ref.String()
	}
	title := s.Capture.GetNamespace() + "/" + s.Capture.GetName()
	if target != "" {
		title += " (" + target + ")"
	}
	return title
}

// status returns the phase of the capture and, while it waits, the reason.
func (s *State) status() string {
	st := s.Capture.CaptureStatus()
	switch {
	case st.Phase.Final():
		if c := apimeta.FindStatusCondition(st.Conditions, v1alpha1.ConditionComplete); c != nil && c.Reason != "" {
			return string(st.Phase) + ": " + c.Reason
		}
		return string(st.Phase)
	case s.Capture.Common().Stop:
		return "Stopping"
	case st.Phase == v1alpha1.PhaseCapturing, st.Phase == v1alpha1.PhaseEnding:
		return string(st.Phase)
	}
	if c := s.waiting(); c != nil {
		return "Waiting: " + c.Reason
	}
	if st.Phase == "" {
		return "Waiting for the operator"
	}
	return "Starting"
}

// waiting returns the condition that keeps a capture from starting, or nil. Its message is too long for the heading.
func (s *State) waiting() *metav1.Condition {
	st := s.Capture.CaptureStatus()
	if s.Capture.Common().Stop || st.Phase.Final() || st.Phase == v1alpha1.PhaseCapturing || st.Phase == v1alpha1.PhaseEnding {
		return nil
	}
	for _, t := range []string{v1alpha1.ConditionAdmitted, v1alpha1.ConditionTargetFound} {
		if c := apimeta.FindStatusCondition(st.Conditions, t); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// clock returns how much of the duration has elapsed. The cluster's clock may differ from this machine's, so the result
// is limited to the duration.
func (s *State) clock(now time.Time) string {
	d, err := duration.Parse(s.Capture.Common().Duration)
	if err != nil || s.Capture.CaptureStatus().Phase != v1alpha1.PhaseCapturing || s.Activity != "" {
		return ""
	}
	elapsed := min(max(0, now.Sub(s.started())), d)
	return fmt.Sprintf("%s of %s", short(elapsed.Truncate(time.Second)), short(d))
}

// started returns when the first probe was attached or, until that is known, when its Job was created.
func (s *State) started() time.Time {
	var first time.Time
	for _, u := range s.updates {
		if u.Account != nil && !u.Account.Started.IsZero() && (first.IsZero() || u.Account.Started.Before(first)) {
			first = u.Account.Started
		}
	}
	if start := s.Capture.CaptureStatus().StartTime; first.IsZero() && start != nil {
		first = start.Time
	}
	return first
}

// short returns 1m and 2h where time.Duration has 1m0s and 2h0m0s.
func short(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

func podState(p v1alpha1.PodResult) string {
	phase := cmp.Or(p.Phase, v1alpha1.PhasePending)
	if p.Reason == "" || p.Reason == string(phase) {
		return string(phase)
	}
	return string(phase) + ": " + p.Reason
}
