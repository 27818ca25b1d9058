package tracefmt

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Version of the format. It rises when a reader of before would take something for what it is not; new keys, calls and
// groups do not raise it.
const Version = 1

// What the first and the last line of a file are, by their key "sonde".
const (
	kindHeader  = "trace"
	kindAccount = "account"
	// kindSkip takes the place of lines that a reader of a running trace does not get; it is in no file.
	kindSkip = "skip"
)

// Header is the first line of a trace: whose it is, and what was asked for.
type Header struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace,omitempty"`
	// Target as the status has it, as Deployment/web.
	Target string `json:"target,omitempty"`
	JobID  string `json:"jobId,omitempty"`
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	Node   string `json:"node,omitempty"`
	// Arch of the node as Go names it: some flags are other bits on another.
	Arch string `json:"arch,omitempty"`
	// Groups of calls that are traced.
	Groups []string `json:"groups,omitempty"`
	// Containers by name, and the command, whose processes alone are traced; empty is all. Children says that what processes
	// of the command start is traced, too.
	Containers []string `json:"containers,omitempty"`
	Command    string   `json:"command,omitempty"`
	Children   bool     `json:"children,omitempty"`
	// Durations says whether calls were measured.
	Durations bool `json:"durations"`
	// Missing are events of these groups of which the node's kernel cannot tell.
	Missing []string `json:"missing,omitempty"`
}

// Account is the last line of a trace that has ended by itself: what is in it, and what is not.
type Account struct {
	// Pod and PodUID as in Record.
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	// Written counts the events of the trace.
	Written uint64 `json:"written"`
	// Lost counts events that are in no line, by where they were lost.
	Lost map[string]uint64 `json:"lost"`
	// LostCalls are those that were lost for want of memory, by the name of call or event.
	LostCalls map[string]uint64 `json:"lostCalls,omitempty"`
	// Complete says that the trace was attached until its end, and that the counts are final.
	Complete bool `json:"complete"`
	// Reason of the end, as the status has it.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// AppendHeader appends the first line of a trace; its version is this package's.
func AppendHeader(b []byte, h Header) ([]byte, error) {
	h.Version = Version
	return appendMeta(b, struct {
		Sonde string `json:"sonde"`
		Header
	}{kindHeader, h})
}

// AppendAccount appends the last line of a trace.
func AppendAccount(b []byte, a Account) ([]byte, error) {
	if a.Lost == nil {
		a.Lost = map[string]uint64{}
	}
	return appendMeta(b, struct {
		Sonde string `json:"sonde"`
		Account
	}{kindAccount, a})
}

func appendMeta(b []byte, v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the trace's header or account: %w", err)
	}
	return append(append(b, line...), '\n'), nil
}

// skip says how many bytes of lines were left out.
type skip struct {
	Sonde string `json:"sonde"`
	Bytes int64  `json:"bytes"`
}

// AppendSkip appends the line that takes the place of so many bytes of lines, for a reader that is too slow for them all.
// A Reader passes it over.
func AppendSkip(b []byte, size int64) ([]byte, error) {
	return appendMeta(b, skip{kindSkip, size})
}

// ParseSkip returns how many bytes a line takes the place of, if it is one of AppendSkip.
func ParseSkip(line []byte) (size int64, ok bool) {
	var s skip
	if !isAboutTrace(line) || json.Unmarshal(line, &s) != nil || s.Sonde != kindSkip || s.Bytes < 0 {
		return 0, false
	}
	return s.Bytes, true
}

// isAboutTrace tells by its beginning whether a line is no event.
func isAboutTrace(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"sonde":`)) }
