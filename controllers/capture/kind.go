package capture

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
)

// Kind is what a Reconciler does for one kind of captures and not for the others. Each kind has a function here
// that makes its value, as PacketCaptures.
type Kind struct {
	kind.Capture
	// action of all Events on captures.
	action string
	// details of a new capture for the audit log, as its keys and values.
	details func(capture sondev1.Capture) []any
	// compile finds out what the probes are to be told beyond the spec. An error means that nobody knows.
	compile func(ctx context.Context, capture sondev1.Capture) (compiled, error)
	// configure is what the probes of a capture are told; the requester is a user name.
	configure func(o agentjob.Options, capture sondev1.Capture, requester string, c compiled) agentjob.Marshaler
}

// compiled is what was found out for the probes of a capture.
type compiled struct {
	// programs of the filter by link type.
	programs map[int32]string
	// unusable says why nothing can be captured by this spec, and note what its requester should know of it. Neither is
	// there where its reason is empty.
	unusable, note remark
}

// remark is a reason, and a message for people.
type remark struct{ reason, message string }

// onNode says how a Pod is one with its node, by the field that makes it so (kind.Capture.OnNode).
var onNode = map[string]string{
	kind.FieldHostNetwork: "the Pod uses its node's network",
	kind.FieldHostPID:     "the Pod sees its node's processes",
}

// controller names the controller of the kind, and the queue that it has.
func (k Kind) controller() string { return strings.ToLower(k.Name) }

// fieldOwner of what the controller writes into captures.
func (k Kind) fieldOwner() client.FieldOwner { return client.FieldOwner("sonde-" + k.controller()) }
