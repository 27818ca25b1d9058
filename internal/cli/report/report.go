// Package report describes how a capture ended: as a table for people, as JSON for scripts, and as the plugin's exit
// code.
package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
	"github.com/sonde-operator/sonde/internal/cli/live"
	"github.com/sonde-operator/sonde/internal/wire/table"
)

// Exit codes of the plugin.
const (
	ExitOK          = 0
	ExitError       = 1
	ExitIncomplete  = 3   // something is saved, but packets or events are or may be missing
	ExitInterrupted = 130 // as a shell reports SIGINT
)

// Report describes how a capture ended. --json prints it as JSON.
type Report struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	JobID     string         `json:"jobId"`
	Target    string         `json:"target"`
	Phase     v1alpha1.Phase `json:"phase"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
	// Complete says that every Pod is Completed and every file is saved completely.
	Complete bool `json:"complete"`
	// Path of the merged file or of the directory; empty if nothing was saved. Size is in bytes.
	Path  string `json:"path,omitempty"`
	Size  int64  `json:"size,omitempty"`
	Pods  []Pod  `json:"pods"`
	Total Counts `json:"total"`
	// Problems are one sentence for each missing part.
	Problems []string `json:"problems,omitempty"`
	// Notes are other facts about the files.
	Notes []string `json:"notes,omitempty"`

	failedFiles, unlisted int
	unit                  live.Unit
}

// Pod is one Pod's part of the report.
type Pod struct {
	Name    string         `json:"name"`
	UID     string         `json:"uid"`
	Node    string         `json:"node"`
	Phase   v1alpha1.Phase `json:"phase"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	// Engine that captured, and why it was not the preferred one.
	Engine        string `json:"engine,omitempty"`
	EngineMessage string `json:"engineMessage,omitempty"`
	Counts
	Files []File `json:"files,omitempty"`
}

// File of a Pod: its saved size in bytes, and its path if the files were not merged.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Path string `json:"path,omitempty"`
}

// New returns the report of a capture that has ended. pods comes from State.Pods, saved from
// Saver.Save of package capture.
func New(c v1alpha1.Capture, pods []v1alpha1.PodResult, saved capture.Saved) Report {
	status, unit := c.CaptureStatus(), capture.UnitOf(c)
	r := Report{
		Namespace: c.GetNamespace(), Name: c.GetName(), JobID: status.JobID, Target: status.Target,
		Phase: status.Phase, Path: saved.Path, Size: saved.Bytes, Pods: []Pod{}, Total: newCounts(unit), unit: unit,
	}
	if c := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionComplete); c != nil {
		r.Reason, r.Message = c.Reason, c.Message
	}
	for _, p := range pods {
		r.pod(p, saved)
	}
	// The files of Pods that did not fit into the status are unknown, unless the live counts listed them.
	if r.unlisted = max(0, int(status.Totals.Pods)-len(pods)+withoutJob(status)); r.unlisted > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d more Pods were %s, but their files do not fit into the status", r.unlisted, r.words().done))
	}
	r.failedFiles = len(saved.Problems())
	r.Problems = append(r.Problems, fileProblems(saved.Problems())...)
	r.Notes = append(r.Notes, messageNotes(pods)...)
	r.Notes = append(r.Notes, r.Total.notes()...)
	r.Notes = append(r.Notes, limitNotes(pods, unit)...)
	r.Notes = append(r.Notes, unwatchedNotes(status)...)
	r.Notes = append(r.Notes, containerNotes(pods)...)
	r.Notes = append(r.Notes, gateNotes(pods)...)
	r.Notes = append(r.Notes, engineNotes(pods)...)
	r.Notes = append(r.Notes, processNotes(pods)...)
	if saved.Late > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d %s are not in the order of time in the file", saved.Late, unit.Count()))
	}
	if len(r.Problems) == 0 && r.Phase != v1alpha1.PhaseCompleted {
		r.Problems = append(r.Problems, fmt.Sprintf("the %s is %s: %s", r.words().what, r.Phase, sentence(r.Reason, r.Message)))
	}
	r.Complete = len(r.Problems) == 0
	return r
}

// withoutJob counts the Pods that a status lists and totals.pods does not count, because they had no Job. Where the status lists all
// Pods it does not matter.
func withoutJob(s *v1alpha1.CaptureStatus) (n int) {
	if s.PodsOmitted == 0 {
		return 0
	}
	for i := range s.Pods {
		if s.Pods[i].Job == "" {
			n++
		}
	}
	return n
}

func (r *Report) pod(p v1alpha1.PodResult, saved capture.Saved) {
	pod := Pod{
		Name: p.Name, UID: p.UID, Node: p.Node, Phase: p.Phase, Reason: p.Reason, Message: p.Message,
		Engine: p.Engine, EngineMessage: p.EngineMessage, Counts: newCounts(r.unit),
	}
	pod.add(p)
	r.Total.add(p)
	for _, f := range saved.Files {
		if f.Pod.UID == p.UID && f.Bytes > 0 {
			pod.Files = append(pod.Files, File{Name: f.Name, Size: f.Bytes, Path: f.Path})
		}
	}
	if p.Phase != v1alpha1.PhaseCompleted {
		r.Problems = append(r.Problems, fmt.Sprintf("%s is %s: %s", p.Name, p.Phase, sentence(p.Reason, p.Message)))
	}
	r.Pods = append(r.Pods, pod)
}

func sentence(reason, message string) string {
	switch {
	case message == "":
		return cmp.Or(reason, "no reason was given")
	case reason == "":
		return message
	}
	return reason + ": " + message
}

// ExitCode returns 0 if everything was saved, 3 if something is missing, and 1 if nothing was saved.
func (r Report) ExitCode() int {
	switch {
	case r.Complete:
		return ExitOK
	case r.Path != "":
		return ExitIncomplete
	}
	return ExitError
}

// AllSaved reports whether the cluster has nothing more to save: every file has its full size, and every Pod has its
// final result. A lost node may come back with a result. A Pod that the status does not list, and whose end the live counts did not
// bring, has a result that was not saved.
func (r Report) AllSaved() bool {
	if r.failedFiles > 0 || r.unlisted > 0 {
		return false
	}
	for _, p := range r.Pods {
		if !p.Phase.Final() || p.Phase == v1alpha1.PhaseIncomplete && len(p.Files) == 0 {
			return false
		}
	}
	return true
}

// Text returns the report for people: a table, the path, and the problems.
func (r Report) Text() string {
	var b strings.Builder
	if len(r.Pods) > 0 {
		b.WriteString(r.Table())
		b.WriteByte('\n')
	}
	switch r.Path {
	case "":
		b.WriteString("Nothing was saved.\n")
	case "-":
		fmt.Fprintf(&b, "Written to the standard output: %s.\n", live.Bytes(r.Size))
	default:
		fmt.Fprintf(&b, "Saved to %s: %s.\n", r.Path, live.Bytes(r.Size))
	}
	b.WriteString(r.NoteText())
	if r.Complete {
		return b.String()
	}
	if r.Path != "" {
		b.WriteString("INCOMPLETE: the saved files do not have everything that the Pods " + r.words().did + ".\n")
	}
	for _, p := range r.Problems {
		b.WriteString("  " + table.Printable(p) + "\n")
	}
	return b.String()
}

// NoteText returns a line for each note.
func (r Report) NoteText() string {
	var b strings.Builder
	for _, n := range r.Notes {
		b.WriteString("Note: " + table.Printable(n) + ".\n")
	}
	return b.String()
}

// words that differ between the kinds of captures.
type words struct{ what, done, did string }

func (r Report) words() words {
	if r.unit == live.Events {
		return words{"trace", "traced", "did"}
	}
	return words{"capture", "captured", "sent and received"}
}

// Table returns one line for each Pod, and their sum.
func (r Report) Table() string { return r.table(false) }

// WideTable is Table with the engines, if they are known.
func (r Report) WideTable() string {
	return r.table(slices.ContainsFunc(r.Pods, func(p Pod) bool { return p.Engine != "" }))
}

func (r Report) table(engines bool) string {
	text := []string{"POD", "NODE", "STATE", "REASON"}
	if engines {
		text = append(text, "ENGINE")
	}
	counted := r.Total.heads()
	rows := [][]string{slices.Concat(text, counted)}
	row := func(c Counts, cells ...string) {
		rows = append(rows, slices.Concat(cells[:len(text)], c.cells()[:len(counted)]))
	}
	for _, p := range r.Pods {
		row(p.Counts, p.Name, p.Node, string(p.Phase), p.Reason, p.Engine)
	}
	if len(r.Pods) > 1 {
		row(r.Total, "TOTAL", "", "", "", "")
	}
	return table.Text(strings.Repeat("l", len(text)), rows)
}
