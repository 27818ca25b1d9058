package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sonde-operator/sonde/internal/wire/text"
)

// DrainTime is how long an opener serves its carrier after SIGTERM. The carrier drains its connections for 5 s.
const DrainTime = 6 * time.Second

// SocketMemory in bytes is the room that each of the two containers has for the buffers of TCP connections. With cgroup v2 the kernel
// counts a socket for the container that made it: the carrier accepts the connections of peers, and the opener makes those to the app. The
// carrier ends connections when the sockets of one container hold more than half of it.
const SocketMemory = 256 << 20

// Reason why an opener has ended.
type Reason string

// The reasons.
const (
	// ReasonStopped means that the opener was asked to end (SIGTERM).
	ReasonStopped Reason = "Stopped"
	// ReasonCarrierGone means that the carrier has ended or never came.
	ReasonCarrierGone Reason = "CarrierGone"
	// ReasonTargetGone means that the Pod's sandbox has ended, or no process of the Pod was found.
	ReasonTargetGone Reason = "TargetGone"
	// ReasonHostNetwork means that the Pod uses the node's network.
	ReasonHostNetwork Reason = "HostNetwork"
	// ReasonKernelUnsupported means that the node's kernel cannot steer.
	ReasonKernelUnsupported Reason = "KernelUnsupported"
	// ReasonFailed means any other failure.
	ReasonFailed Reason = "Failed"
)

var reasons = []Reason{ReasonStopped, ReasonCarrierGone, ReasonTargetGone, ReasonHostNetwork, ReasonKernelUnsupported, ReasonFailed}

// maxOutcome is the kubelet's limit for a container's termination message, in bytes. maxMessage leaves room for escapes.
const (
	maxOutcome = 4096
	maxMessage = 600
)

// Outcome is an opener's termination message.
type Outcome struct {
	Reason Reason `json:"reason"`
	// Message for the user.
	Message string `json:"message,omitempty"`
}

// Marshal returns the outcome as JSON of at most 4096 bytes.
func (o Outcome) Marshal() ([]byte, error) {
	o.Message = text.Truncate(strings.ToValidUTF8(o.Message, ""), maxMessage)
	return json.Marshal(o)
}

// ParseOutcome reads a termination message.
func ParseOutcome(b []byte) (Outcome, error) {
	if len(b) > maxOutcome {
		return Outcome{}, fmt.Errorf("opener's outcome: %d bytes, want at most %d", len(b), maxOutcome)
	}
	var o Outcome
	if err := json.Unmarshal(b, &o); err != nil {
		return Outcome{}, fmt.Errorf("opener's outcome: %w", err)
	}
	if !slices.Contains(reasons, o.Reason) {
		return Outcome{}, errors.New("opener's outcome: unknown reason")
	}
	o.Message = text.Truncate(o.Message, maxMessage)
	return o, nil
}
