// Package recording holds what all engines that record one Pod share: why a recording ended, and when its timers fire.
package recording

import (
	"context"
	"errors"
)

// Reason says why a recording ended.
type Reason string

// The reasons. Only DiskFull and Error mean that something of the target may be missing for other causes than those
// that the account counts.
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

// Complete tells whether the result holds everything up to the end that was asked for (losses are counted apart).
func (r Reason) Complete() bool { return r != DiskFull && r != Error }

// ErrTargetGone as the cause of a context ends a recording with TargetGone.
var ErrTargetGone = errors.New("the target has left the node")

// ReasonOf returns the reason of a context's end: a deadline is Duration, ErrTargetGone is TargetGone, anything else Stopped.
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
