// Package priority builds the PriorityClass of Sonde's probes. The operator makes it, so that it goes with the install: OLM
// v0 leaves behind what has no namespace, but for roles and what roles own.
package priority

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/operator/platform"
)

// Kind of the object.
var Kind = schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass"}

// value is above ordinary workloads', which is 0, in the order of eviction, and below what clusters give to their own.
// The API lets nobody change it: another value needs another name.
const value = 1_000_000

// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,resourceNames=sonde-probe,verbs=create;get;list;watch;patch;delete

// Build returns the PriorityClass. Probes wait for room; they never push a workload from its node.
// It leaves out globalDefault, which the API server does not return when false: it could never be found as built.
func Build() *unstructured.Unstructured {
	return platform.New(Kind, "", agentjob.PriorityClass, map[string]any{
		"value":            int64(value),
		"preemptionPolicy": "Never",
		"description":      "Sonde's probes. Above ordinary workloads in eviction order, never preempting them.",
	})
}
