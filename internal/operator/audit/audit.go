// Package audit names the lines of the manager's log that say who did what. docs/operations.md shows them.
package audit

// Key marks such a line; its value is one of the actions below. Requester is the name of the user.
const (
	Key       = "audit"
	Requester = "requester"
)

// Actions.
const (
	// RequestAdmitted and RequestRefused are decisions on a new PacketCapture or ResultAccess.
	RequestAdmitted = "RequestAdmitted"
	RequestRefused  = "RequestRefused"
	// StopRequested says who ended a capture early.
	StopRequested = "StopRequested"
	// CaptureStarted and CaptureEnded frame a capture.
	CaptureStarted = "CaptureStarted"
	CaptureEnded   = "CaptureEnded"
	// ResultServed is a download, whole or broken off; ResultRefused one that was not begun.
	ResultServed  = "ResultServed"
	ResultRefused = "ResultRefused"
	// ProgressServed says who watched the counts of a capture.
	ProgressServed = "ProgressServed"
)
