// Package report says how a capture ended: as a table for people, as JSON for scripts, and as the
// plugin's exit code.
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
	ExitIncomplete  = 3   // there is a file, and packets are missing from it or may be
	ExitInterrupted = 130 // as a shell has it for SIGINT
)

// Report is how a capture ended; its JSON form is what --json prints.
type Report struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	JobID     string         `json:"jobId"`
	Target    string         `json:"target"`
	Phase     v1alpha1.Phase `json:"phase"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
	// Complete: every Pod is Completed and every file is here, whole.
	Complete bool `json:"complete"`
	// Path of the merged file or of the directory; empty when nothing was saved. Size in bytes.
	Path  string `json:"path,omitempty"`
	Size  int64  `json:"size,omitempty"`
	Pods  []Pod  `json:"pods"`
	Total Counts `json:"total"`
	// Problems say what is missing, one sentence each.
	Problems []string `json:"problems,omitempty"`
	// Notes say what else to know about the file.
	Notes []string `json:"notes,omitempty"`

	failedFiles, unknown int
	unit                 live.Unit
}

// Pod is one Pod's part.
type Pod struct {
	Name    string         `json:"name"`
	UID     string         `json:"uid"`
	Node    string         `json:"node"`
	Phase   v1alpha1.Phase `json:"phase"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	// Engine that captured, and why it is not the one that is preferred.
	Engine        string `json:"engine,omitempty"`
	EngineMessage string `json:"engineMessage,omitempty"`
	Counts
	Files []File `json:"files,omitempty"`
}

// File is one file of a Pod: its size in bytes as saved, and its path where files were kept apart.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	Path string `json:"path,omitempty"`
}

// New makes the report of a capture that has ended: pods as capture.State has them, saved as
// capture.Saver left it.
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
	// The files of Pods that the status has no room for are known only from the stream, if at all.
	if r.unknown = max(0, int(status.Totals.Pods)-len(pods)); r.unknown > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d further Pods were %s, and the status has no room for their files", r.unknown, r.words().done))
	}
	r.failedFiles = len(saved.Problems())
	for _, f := range saved.Problems() {
		r.Problems = append(r.Problems, fmt.Sprintf("%s: %v", f.Pod.Name, f.Err))
	}
	r.Notes = append(r.Notes, r.Total.notes()...)
	r.Notes = append(r.Notes, gateNotes(pods)...)
	r.Notes = append(r.Notes, engineNotes(pods)...)
	if saved.Late > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d %s stand behind later ones in the file", saved.Late, unit.Count()))
	}
	if len(r.Problems) == 0 && r.Phase != v1alpha1.PhaseCompleted {
		r.Problems = append(r.Problems, fmt.Sprintf("the %s is %s: %s", r.words().what, r.Phase, sentence(r.Reason, r.Message)))
	}
	r.Complete = len(r.Problems) == 0
	return r
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
	switch {
	case p.Phase != v1alpha1.PhaseCompleted:
		r.Problems = append(r.Problems, fmt.Sprintf("%s is %s: %s", p.Name, p.Phase, sentence(p.Reason, p.Message)))
	case p.Message != "": // as of an interface that was asked for and never came
		r.Notes = append(r.Notes, p.Name+": "+p.Message)
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

// ExitCode is 0 for a whole result, 3 for one that is saved and not whole, 1 where nothing is saved.
func (r Report) ExitCode() int {
	switch {
	case r.Complete:
		return ExitOK
	case r.Path != "":
		return ExitIncomplete
	}
	return ExitError
}

// Everything reports whether nothing is left in the cluster that could still be saved: no file is
// missing or of a wrong size, and no Pod has a result that is not listed (a lost node may come back).
func (r Report) Everything() bool {
	if r.failedFiles > 0 || r.unknown > 0 {
		return false
	}
	for _, p := range r.Pods {
		if p.Phase == v1alpha1.PhaseIncomplete && len(p.Files) == 0 {
			return false
		}
	}
	return true
}

// Text is the report for people: a table, where the file is, and what is missing.
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
		b.WriteString("INCOMPLETE: what is saved is not everything that the Pods " + r.words().did + ".\n")
	}
	for _, p := range r.Problems {
		b.WriteString("  " + table.Printable(p) + "\n")
	}
	return b.String()
}

// NoteText has a line for each of the notes.
func (r Report) NoteText() string {
	var b strings.Builder
	for _, n := range r.Notes {
		b.WriteString("Note: " + table.Printable(n) + ".\n")
	}
	return b.String()
}

// words that differ between kinds.
type words struct{ what, done, did string }

func (r Report) words() words {
	if r.unit == live.Events {
		return words{"trace", "traced", "did"}
	}
	return words{"capture", "captured", "sent and received"}
}

// Table has one line per Pod, and their sum.
func (r Report) Table() string { return r.table(false) }

// WideTable is Table with the engines, where they are known.
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
