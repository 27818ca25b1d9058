package capture

import (
	"context"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/kind"
)

// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=traces,verbs=get;list;watch
// +kubebuilder:rbac:groups=monitoring.openshift.tpg,resources=traces/status,verbs=patch

// Traces is the kind Trace.
func Traces() Kind {
	return Kind{
		Capture: kind.Trace, action: "Trace",
		details: func(capture sondev1.Capture) []any {
			s := traceSpec(capture)
			return []any{"events", s.Events, "containers", s.Containers, "command", s.Command}
		},
		interfaces: func(sondev1.Capture) bool { return false },
		compile:    func(context.Context, sondev1.Capture, string) (compiled, error) { return compiled{}, nil },
		configure: func(o agentjob.Options, capture sondev1.Capture, requester string, _ compiled) agentjob.Marshaler {
			t, _ := capture.(*sondev1.Trace)
			return agentjob.TraceConfiguration(o, t, t.Status.JobID, requester)
		},
	}
}

func traceSpec(capture sondev1.Capture) *sondev1.TraceSpec {
	spec, _ := capture.CaptureSpec().(*sondev1.TraceSpec)
	return spec
}
