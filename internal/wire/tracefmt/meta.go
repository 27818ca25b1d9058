package tracefmt

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Version of the format. It rises when older readers would misread a trace. New keys, calls and groups do not raise it.
const Version = 1

// Values of the key "sonde", which only lines that are not events have.
const (
	kindHeader  = "trace"
	kindAccount = "account"
	// kindSkip replaces lines that are not sent to the reader of a running trace. No file has it.
	kindSkip = "skip"
)

// Header is the first line of a trace: the Pod, and the request.
type Header struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace,omitempty"`
	// Target as the status spells it, like Deployment/web.
	Target string `json:"target,omitempty"`
	JobID  string `json:"jobId,omitempty"`
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	Node   string `json:"node,omitempty"`
	// Arch is Go's name of the node's architecture. Some flags have other bits on another architecture.
	Arch string `json:"arch,omitempty"`
	// Groups of calls that are traced.
	Groups []string `json:"groups,omitempty"`
	// Containers and Command restrict the trace to processes of these containers and of this command; empty means all.
	// Children says that the descendants of the command's processes are traced too.
	Containers []string `json:"containers,omitempty"`
	Command    string   `json:"command,omitempty"`
	Children   bool     `json:"children,omitempty"`
	// Durations says whether calls were measured.
	Durations bool `json:"durations"`
	// Missing are events of these groups that the node's kernel cannot report.
	Missing []string `json:"missing,omitempty"`
}

// Account is the last line of a trace whose tracer was not killed: how many events it has, and how many are missing.
type Account struct {
	// Pod and PodUID as in Record.
	Pod    string `json:"pod,omitempty"`
	PodUID string `json:"podUid,omitempty"`
	// Written counts the events of the trace.
	Written uint64 `json:"written"`
	// Lost counts events that are in no line, by where they were lost.
	Lost map[string]uint64 `json:"lost"`
	// LostCalls counts events that were lost because a buffer was full, by the name of the call or event.
	LostCalls map[string]uint64 `json:"lostCalls,omitempty"`
	// Unnamed counts names of files and working directories that the tracer had no memory for: events about them are in the
	// trace, without a path. Sockets that it had no time to find, or no memory for, count as one.
	Unnamed uint64 `json:"unnamed,omitempty"`
	// Complete says that the trace was attached until its end, and that the counts are final.
	Complete bool `json:"complete"`
	// Reason of the end, as in the status.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// AppendHeader appends the first line of a trace, with Version as its version.
func AppendHeader(b []byte, h Header) ([]byte, error) {
	h.Version = Version
	return appendMetadata(b, struct {
		Sonde string `json:"sonde"`
		Header
	}{kindHeader, h})
}

// AppendAccount appends the last line of a trace.
func AppendAccount(b []byte, a Account) ([]byte, error) {
	if a.Lost == nil {
		a.Lost = map[string]uint64{}
	}
	return appendMetadata(b, struct {
		Sonde string `json:"sonde"`
		Account
	}{kindAccount, a})
}

func appendMetadata(b []byte, v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the header or account of the trace: %w", err)
	}
	return append(append(b, line...), '\n'), nil
}

// skip says how many bytes of lines were not sent.
type skip struct {
	Sonde string `json:"sonde"`
	Bytes int64  `json:"bytes"`
}

// AppendSkip appends the line that replaces size bytes of lines, for a reader that is too slow for all of them. A
// Reader ignores it.
func AppendSkip(b []byte, size int64) ([]byte, error) {
	return appendMetadata(b, skip{kindSkip, size})
}

// ParseSkip returns how many bytes a line replaces. ok says that AppendSkip wrote the line.
func ParseSkip(line []byte) (size int64, ok bool) {
	var s skip
	if !isMetadata(line) || json.Unmarshal(line, &s) != nil || s.Sonde != kindSkip || s.Bytes < 0 {
		return 0, false
	}
	return s.Bytes, true
}

// isMetadata reports whether a line is not an event, judged by its beginning.
func isMetadata(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"sonde":`)) }
