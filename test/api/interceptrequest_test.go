//go:build api

package api

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// interceptObject builds an InterceptRequest as a user writes it. A change of nil takes a field away.
func interceptObject(ns string, changed map[string]any) *unstructured.Unstructured {
	spec := joined(map[string]any{
		"targetDeployment": "web", "targetContainerPort": int64(8080), "clientKey": strings.Repeat("A", 43) + "=",
	}, changed)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	o := object(ns, spec)
	o.SetKind("InterceptRequest")
	return o
}

// TestInterceptRequestRules: the API server refuses what no intercept can do, and says what to write.
func TestInterceptRequestRules(t *testing.T) {
	ns := namespace(t, nil)
	path := func(conditions map[string]any) map[string]any {
		return map[string]any{"match": map[string]any{"path": conditions}}
	}
	for name, c := range map[string]creation{
		"a port":                   {},
		"a Pod":                    {fields: map[string]any{"targetDeployment": nil, "targetPod": "web-0"}},
		"a StatefulSet":            {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "StatefulSet", "name": "db"}}},
		"no target":                {fields: map[string]any{"targetDeployment": nil}, want: "name one target"},
		"two targets":              {fields: map[string]any{"targetPod": "web-0"}, want: "name one target"},
		"no port":                  {fields: map[string]any{"targetContainerPort": nil}, want: "targetContainerPort"},
		"port 65536":               {fields: map[string]any{"targetContainerPort": int64(65536)}, want: "65535"},
		"a path":                   {fields: path(map[string]any{"prefix": "/api"})},
		"two conditions of a path": {fields: path(map[string]any{"prefix": "/api", "exact": "/api"}), want: "exactly one of exact, prefix and regex"},
		"no condition of a path":   {fields: path(map[string]any{}), want: "exactly one of exact, prefix and regex"},
		"a server name":            {fields: map[string]any{"match": map[string]any{"serverName": map[string]any{"exact": "shop.example"}}}},
		"a server name and a path": {fields: map[string]any{"match": map[string]any{"serverName": map[string]any{"exact": "x"}, "path": map[string]any{"exact": "/"}}}, want: "serverName stands alone"},
		"an empty match":           {fields: map[string]any{"match": map[string]any{}}, want: "name a condition"},
		"a header":                 {fields: map[string]any{"match": map[string]any{"headers": []any{map[string]any{"name": "x", "exact": ""}}}}},
		"a header without a value": {fields: map[string]any{"match": map[string]any{"headers": []any{map[string]any{"name": "x"}}}}, want: "exactly one of exact, prefix and regex"},
		"probes":                   {fields: map[string]any{"probes": "Client"}},
		"probes and a match":       {fields: map[string]any{"probes": "Client", "match": map[string]any{"method": map[string]any{"exact": "GET"}}}, want: "Leave out match or probes"},
		"another mode":             {fields: map[string]any{"mode": "Mirror"}, want: "Steal"},
		"lost requests":            {fields: map[string]any{"onDisconnect": "Client"}, want: "onDisconnect must be App"},
		"no grace":                 {fields: map[string]any{"gracePeriod": "0s"}, want: "between 1s and 10m"},
		"words for a time":         {fields: map[string]any{"gracePeriod": "long"}, want: "gracePeriod must be seconds"},
		"two days":                 {fields: map[string]any{"expiresAfter": "48h"}, want: "between 10s and 24h"},
		"no key":                   {fields: map[string]any{"clientKey": nil}, want: "clientKey"},
		"a key of another form":    {fields: map[string]any{"clientKey": "secret"}, want: "kubectl sonde intercept"},
	} {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), interceptObject(ns, c.fields))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("error %v, want %q in it", err, c.want)
			}
		})
	}
}

// TestInterceptRequestIsImmutable checks that no field can change, and which defaults a request gets.
func TestInterceptRequestIsImmutable(t *testing.T) {
	ns := namespace(t, nil)
	o := interceptObject(ns, nil)
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	for field, want := range map[string]any{"mode": "Steal", "probes": "App", "onDisconnect": "App", "gracePeriod": "10s", "expiresAfter": "8h"} {
		if diff := cmp.Diff(want, spec[field]); diff != "" {
			t.Errorf("default of %s (-want +got):\n%s", field, diff)
		}
	}
	for field, value := range map[string]any{"targetContainerPort": int64(9090), "expiresAfter": "9h", "clientKey": strings.Repeat("B", 43) + "=", "targetDeployment": "api"} {
		changed := o.DeepCopy()
		if err := unstructured.SetNestedField(changed.Object, value, "spec", field); err != nil {
			t.Fatal(err)
		}
		if err := admin.Update(t.Context(), changed); err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s is changed: %v, want a refusal that says immutable", field, err)
		}
	}
}
