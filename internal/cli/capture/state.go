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

// operatorSilent is after how long without any status a user should look after the operator.
const operatorSilent = 15 * time.Second

// maxTroubles of single Pods are shown at once.
const maxTroubles = 3

// State is what is known of a capture: its status, and above it the live counts, which are never
// written to a status.
type State struct {
	// Capture as last seen.
	Capture v1alpha1.Capture
	// Trouble says why no live counts come; empty while they do.
	Trouble string
	// Activity replaces the status in the heading, like "Merging".
	Activity string

	since    time.Time
	gating   time.Time // since when new Pods wait, as far as it was seen
	updates  map[string]results.Update
	fetching map[string]string
}

// NewState returns the state of a capture that is followed from now on.
func NewState(c v1alpha1.Capture, now time.Time) *State {
	return &State{Capture: c, since: now, updates: map[string]results.Update{}, fetching: map[string]string{}}
}

// Update takes in a line of the progress stream.
func (s *State) Update(u results.Update) {
	s.Trouble = ""
	if u.Account == nil { // keep the last counts
		u.Account = s.updates[u.UID].Account
	}
	s.updates[u.UID] = u
}

// Fetching says, in a Pod's line, how far its file's transfer is; done and total in bytes.
func (s *State) Fetching(uid string, done, total int64) {
	text := "Downloading " + live.Bytes(done)
	if total > 0 {
		text = fmt.Sprintf("Downloading %d%%", done*100/total)
	}
	if total >= 0 && done == total {
		text = "Downloaded"
	}
	s.fetching[uid] = text
}

// Ended reports whether nothing more will be captured.
func (s *State) Ended() bool { return s.Capture.CaptureStatus().Phase.Final() }

// Pods returns every Pod known from status or stream, by name: final entries as the status has them,
// others with the newer of both counts.
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

// overlay puts what the stream knows over a status entry that is not final.
func overlay(p v1alpha1.PodResult, u results.Update) v1alpha1.PodResult {
	if u.Phase != "" && u.Phase != p.Phase { // the status' reason was for its own phase
		p.Phase, p.Reason, p.Message = u.Phase, "", ""
	}
	a := u.Account
	if a == nil || a.Seen < p.Packets+p.Overwritten+p.Dropped.Total()+p.Events+p.LostEvents() {
		return p
	}
	p.Packets, p.Bytes, p.Truncated, p.Overwritten = a.Packets, a.Bytes, a.Truncated, a.Overwritten
	p.Dropped = v1alpha1.Dropped{Kernel: a.DroppedKernel, Ring: a.DroppedRing, Writer: a.DroppedWriter}
	p.Events, p.Lost = a.Events, a.Lost
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

// View returns what to show at the time now.
func (s *State) View(now time.Time) live.View {
	t := traitsOf(s.Capture)
	v := live.View{Title: s.title(), Status: cmp.Or(s.Activity, s.status()), Clock: s.clock(now), Unit: t.unit}
	for _, p := range s.Pods() {
		count, lost := t.counts(p)
		v.Pods = append(v.Pods, live.Pod{
			Name: p.Name, Node: p.Node, State: cmp.Or(s.fetching[p.UID], podState(p)), Count: count, Bytes: p.Bytes, Lost: lost,
		})
	}
	if n := s.Capture.CaptureStatus().PodsOmitted; n > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("The status has no room for %d Pods of this capture.", n))
	}
	if c := s.waiting(); c != nil {
		v.Notes = append(v.Notes, c.Message)
	}
	v.Notes = append(v.Notes, s.gate(now)...)
	if !s.Ended() {
		v.Notes = append(v.Notes, s.troubles()...)
	}
	if s.Capture.CaptureStatus().Phase == "" && now.Sub(s.since) >= operatorSilent {
		v.Notes = append(v.Notes, "No answer from the operator yet: look whether its Pod runs.")
	}
	return v
}

// troubles says why live counts are missing: for all, or for single Pods.
func (s *State) troubles() []string {
	if s.Trouble != "" {
		return []string{"No live counts: " + noCounts(s.Trouble)}
	}
	var notes []string
	for _, u := range s.updates {
		if u.Error != "" && !u.Phase.Final() {
			notes = append(notes, fmt.Sprintf("No live counts of %s: %s", u.Pod, noCounts(u.Error)))
		}
	}
	slices.Sort(notes)
	return notes[:min(len(notes), maxTroubles)]
}

func (s *State) title() string {
	target := s.Capture.CaptureStatus().Target
	if ref := s.Capture.Common().Target; target == "" && ref.Name != "" {
		target = string(ref.Kind) + "/" + ref.Name
	}
	title := s.Capture.GetNamespace() + "/" + s.Capture.GetName()
	if target != "" {
		title += " (" + target + ")"
	}
	return title
}

// status says where the capture stands and, while it waits, for what.
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
	case st.Phase == v1alpha1.PhaseCapturing:
		return "Capturing"
	}
	if c := s.waiting(); c != nil {
		return "Waiting: " + c.Reason
	}
	if st.Phase == "" {
		return "Waiting for the operator"
	}
	return "Starting"
}

// waiting is the condition that a capture, before it begins, waits for; nil where there is none. Its message
// is too long for the heading.
func (s *State) waiting() *metav1.Condition {
	st := s.Capture.CaptureStatus()
	if s.Capture.Common().Stop || st.Phase.Final() || st.Phase == v1alpha1.PhaseCapturing {
		return nil
	}
	for _, t := range []string{v1alpha1.ConditionAdmitted, v1alpha1.ConditionTargetFound} {
		if c := apimeta.FindStatusCondition(st.Conditions, t); c != nil && c.Status == metav1.ConditionFalse {
			return c
		}
	}
	return nil
}

// clock says how much of the duration is over. The cluster's clock may differ from this machine's,
// so it is kept within bounds.
func (s *State) clock(now time.Time) string {
	d, err := duration.Parse(s.Capture.Common().Duration)
	if err != nil || s.Capture.CaptureStatus().Phase != v1alpha1.PhaseCapturing || s.Activity != "" {
		return ""
	}
	over := min(max(0, now.Sub(s.started())), d)
	return fmt.Sprintf("%s of %s", short(over.Truncate(time.Second)), short(d))
}

// started is when the first probe was attached, or, until that is known, when its Job was made.
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

// short writes 1m and 2h where time.Duration writes 1m0s and 2h0m0s.
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
