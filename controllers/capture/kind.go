package capture

import (
	"context"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
)

// Kind holds the differences between the reconcilers of PacketCaptures and Traces, which return the values.
type Kind struct {
	kind.Capture
	// action of all Events on captures.
	action string
	// details of a new capture for the audit log, as its keys and values.
	details func(capture sondev1.Capture) []any
	// interfaces reports whether a capture names interfaces.
	interfaces func(capture sondev1.Capture) bool
	// compile returns what the probes need beyond the spec, at the requester's cost. After an error the pass is retried.
	compile func(ctx context.Context, capture sondev1.Capture, requester string) (compiled, error)
	// configure returns the configuration of the probes; requester is a user name.
	configure func(o agentjob.Options, capture sondev1.Capture, requester string, c compiled) agentjob.Marshaler
}

// compiled is the input of a capture's probes that is not in its spec.
type compiled struct {
	// programs of the filter by link type.
	programs map[int32]string
	// unusable says why this spec cannot capture anything. note warns the requester. An empty reason means none.
	unusable, note remark
}

// remark is a reason, and a message for people.
type remark struct{ reason, message string }

// onNode says what a Pod shares with its node, by the field that causes it (kind.Capture.OnNode).
var onNode = map[string]string{
	kind.FieldHostNetwork: "the Pod uses its node's network",
	kind.FieldHostPID:     "the Pod sees its node's processes",
}

// controller names the kind's controller and its queue.
func (k Kind) controller() string { return strings.ToLower(k.Name) }

// fieldOwner of the fields that the controller writes into captures.
func (k Kind) fieldOwner() client.FieldOwner { return client.FieldOwner("sonde-" + k.controller()) }
