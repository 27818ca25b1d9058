// Package recording has what captures and traces of a Pod share: the end reasons, and aligned timers.
package recording

import (
	"context"
	"errors"
)

// Reason says why a recording ended.
type Reason string

// Reasons. The account counts everything that the result misses, except possibly after DiskFull and Error.
const (
	Duration    Reason = "Duration"
	Stopped     Reason = "Stopped"
	PacketLimit Reason = "PacketLimit"
	EventLimit  Reason = "EventLimit"
	ByteLimit   Reason = "ByteLimit"
	TargetGone  Reason = "TargetGone"
	DiskFull    Reason = "DiskFull"
	Error       Reason = "Error"
)

// Complete reports whether the result has everything up to the requested end, except for the losses in the account.
func (r Reason) Complete() bool { return r != DiskFull && r != Error }

// ErrTargetGone as the cause of a context ends a recording with TargetGone.
var ErrTargetGone = errors.New("the target has left the node")

// ReasonOf returns why a context ended: a deadline is Duration, ErrTargetGone is TargetGone, anything else Stopped.
func ReasonOf(ctx context.Context) Reason {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrTargetGone):
		return TargetGone
	case errors.Is(cause, context.DeadlineExceeded):
		return Duration
	default:
		return Stopped
	}
}
