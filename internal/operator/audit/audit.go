// Package audit names the audit records in the manager's log. docs/operations.md shows them.
package audit

// Key marks an audit record; its value is one of the actions below. Requester is the key of the user's name. Claimed marks a
// record of what a call of the webhooks says: the API server does not authenticate to them, and may store the object or not.
const (
	Key       = "audit"
	Requester = "requester"
	Claimed   = "claimed"
)

// Actions.
const (
	// RequestAdmitted and RequestRefused are decisions on a new PacketCapture, Trace, InterceptRequest or ResultAccess, and on a
	// FluentPVC that is new or changes.
	RequestAdmitted = "RequestAdmitted"
	RequestRefused  = "RequestRefused"
	// StopRequested is the early end of a capture by a user.
	StopRequested = "StopRequested"
	// CaptureStarted and CaptureEnded are the first and last record of a capture.
	CaptureStarted = "CaptureStarted"
	CaptureEnded   = "CaptureEnded"
	// InterceptActive is when connections of the target begin to go to a developer's machine, also after a loss. InterceptEnded is the
	// last record of an InterceptRequest, also of one that was deleted.
	InterceptActive = "InterceptActive"
	InterceptEnded  = "InterceptEnded"
	// ReleaseStarted is when a Job of a Collector is made, and ReleaseEnded when its report is read.
	ReleaseStarted = "ReleaseStarted"
	ReleaseEnded   = "ReleaseEnded"
	// ResultServed is a download, complete or broken off. ResultRefused is one that did not begin.
	ResultServed  = "ResultServed"
	ResultRefused = "ResultRefused"
	// ProgressServed is a user watching the counts of a capture.
	ProgressServed = "ProgressServed"
)
