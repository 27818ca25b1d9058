//go:build api

package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gatedObject builds a Trace with a gate, as a user writes it; nil omits the gate.
func gatedObject(ns string, gate map[string]any) *unstructured.Unstructured {
	spec := map[string]any{"targetDeployment": "web"}
	if gate != nil {
		spec["gate"] = gate
	}
	return traceObject(ns, spec)
}

func TestTraceGateValidation(t *testing.T) {
	cases := map[string]struct {
		gate map[string]any
		want string // part of the refusal; empty if accepted
	}{
		"none":                 {},
		"empty":                {gate: map[string]any{}},
		"enabled":              {gate: map[string]any{"enabled": true}},
		"all of it":            {gate: map[string]any{"enabled": true, "timeout": "90s", "onTimeout": "Fail"}},
		"timeout in seconds":   {gate: map[string]any{"enabled": true, "timeout": "600"}},
		"shortest timeout":     {gate: map[string]any{"enabled": true, "timeout": "1s"}},
		"longest timeout":      {gate: map[string]any{"enabled": true, "timeout": "10m"}},
		"no timeout":           {gate: map[string]any{"timeout": "0"}, want: "gate.timeout must lie between 1s and 10m"},
		"timeout too long":     {gate: map[string]any{"timeout": "601s"}, want: "gate.timeout must lie between 1s and 10m"},
		"too long, in seconds": {gate: map[string]any{"timeout": "601"}, want: "gate.timeout must lie between 1s and 10m"},
		"timeout in words":     {gate: map[string]any{"timeout": "soon"}, want: "gate.timeout must be seconds"},
		"timeout in ms":        {gate: map[string]any{"timeout": "500ms"}, want: "gate.timeout must be seconds"},
		"another way out":      {gate: map[string]any{"onTimeout": "Retry"}, want: `supported values: "Proceed", "Fail"`},
		"enabled in words":     {gate: map[string]any{"enabled": "yes"}, want: "must be of type boolean"},
	}
	ns := namespace(t, nil)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			answered(t, admin.Create(t.Context(), gatedObject(ns, tc.gate)), tc.want)
		})
	}
}

func TestTraceGateDefaultsAndStays(t *testing.T) {
	ns := namespace(t, nil)
	o := gatedObject(ns, map[string]any{"enabled": true})
	create(t, o)
	gate, _, _ := unstructured.NestedMap(o.Object, "spec", "gate")
	if diff := cmp.Diff(map[string]any{"enabled": true, "timeout": "30s", "onTimeout": "Proceed"}, gate); diff != "" {
		t.Errorf("spec.gate (-want +got):\n%s", diff)
	}
	without := gatedObject(ns, nil)
	create(t, without)
	for what, change := range map[string]func() error{
		"another timeout": func() error { return update(t, o, "gate", map[string]any{"enabled": true, "timeout": "60s"}) },
		"disabled":        func() error { return update(t, o, "gate", map[string]any{"enabled": false}) },
		"removed":         func() error { return update(t, o, "gate", nil) },
		"added":           func() error { return update(t, without, "gate", map[string]any{"enabled": true}) },
	} {
		if err := change(); err == nil || !strings.Contains(err.Error(), "gate is immutable") {
			t.Errorf("%s: got error %v, want gate is immutable", what, err)
		}
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	if err := update(t, o, "stop", true); err != nil {
		t.Errorf("stopping it: %v", err)
	}
}
