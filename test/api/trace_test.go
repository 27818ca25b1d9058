//go:build api

package api

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// traceObject builds a Trace as a user writes it.
func traceObject(ns string, spec map[string]any) *unstructured.Unstructured {
	o := object(ns, spec)
	o.SetKind("Trace")
	return o
}

func TestTraceCreateValidation(t *testing.T) {
	cases := map[string]struct {
		fields map[string]any
		want   string // part of the refusal; empty: accepted
	}{
		"as it is":                   {},
		"until the Pod is gone":      {fields: map[string]any{"duration": nil}},
		"jobId and namespace":        {fields: map[string]any{"jobId": "qwer", "targetNamespace": "openshift-gitops"}},
		"targetRef":                  {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "DaemonSet", "name": "log"}}},
		"all groups":                 {fields: map[string]any{"events": []any{"process", "file", "io", "network", "memory", "signal"}}},
		"all limits":                 {fields: map[string]any{"maxBytes": int64(65536), "maxEvents": int64(1), "minLatency": "1ns"}},
		"slow ones":                  {fields: map[string]any{"minLatency": "500us"}},
		"the slowest":                {fields: map[string]any{"minLatency": "3600s"}},
		"flap":                       {fields: map[string]any{"format": "flap"}},
		"no following":               {fields: map[string]any{"followPods": false}},
		"retained a week":            {fields: map[string]any{"retainFor": "168h"}},
		"no target":                  {fields: map[string]any{"targetDeployment": nil}, want: "name a target: set targetDeployment"},
		"two targets":                {fields: map[string]any{"targetRef": map[string]any{"kind": "Pod", "name": "a"}}, want: "make a second Trace"},
		"empty target":               {fields: map[string]any{"targetDeployment": ""}, want: "targetDeployment must be the name of a Deployment"},
		"unknown target kind":        {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "CronJob", "name": "a"}}, want: `supported values: "Deployment"`},
		"namespace with a slash":     {fields: map[string]any{"targetNamespace": "a/b"}, want: "targetNamespace must be the name of a namespace"},
		"jobId too long":             {fields: map[string]any{"jobId": "qwert"}, want: "jobId must be four characters of [a-z0-9], like qwer"},
		"duration in words":          {fields: map[string]any{"duration": "forever"}, want: `duration must be seconds, like "30"`},
		"empty duration":             {fields: map[string]any{"duration": ""}, want: `duration must be seconds, like "30"`},
		"duration zero":              {fields: map[string]any{"duration": "0s"}, want: "duration must lie between 1s and 24h"},
		"duration too long":          {fields: map[string]any{"duration": "25h"}, want: "duration must lie between 1s and 24h"},
		"no groups":                  {fields: map[string]any{"events": []any{}}, want: "events in body should have at least 1 items"},
		"an unknown group":           {fields: map[string]any{"events": []any{"all"}}, want: `supported values: "process", "file", "io", "network", "memory", "signal"`},
		"a group twice":              {fields: map[string]any{"events": []any{"io", "io"}}, want: "Duplicate value"},
		"groups in words":            {fields: map[string]any{"events": "io"}, want: "must be of type array"},
		"minLatency in words":        {fields: map[string]any{"minLatency": "long"}, want: `minLatency must be a number with ns, us, ms or s, like "500us"`},
		"minLatency without a unit":  {fields: map[string]any{"minLatency": "5"}, want: "minLatency must be a number with ns, us, ms or s"},
		"minLatency with a fraction": {fields: map[string]any{"minLatency": "1.5ms"}, want: "minLatency must be a number with ns, us, ms or s"},
		"minLatency of none":         {fields: map[string]any{"minLatency": "0ms"}, want: "minLatency must lie between 1ns and 1h; leave it out to record all calls"},
		"minLatency too long":        {fields: map[string]any{"minLatency": "3601s"}, want: "minLatency must lie between 1ns and 1h"},
		"empty minLatency":           {fields: map[string]any{"minLatency": ""}, want: "minLatency must be a number"},
		"unknown format":             {fields: map[string]any{"format": "json"}, want: `supported values: "ndjson", "flap"`},
		"maxBytes small":             {fields: map[string]any{"maxBytes": int64(65535)}, want: "greater than or equal to 65536"},
		"maxBytes too large":         {fields: map[string]any{"maxBytes": int64(1<<40 + 1)}, want: "less than or equal to 1099511627776"},
		"maxEvents zero":             {fields: map[string]any{"maxEvents": int64(0)}, want: "greater than or equal to 1"},
		"some containers":            {fields: map[string]any{"containers": []any{"web", "istio-proxy", "0"}}},
		"a command":                  {fields: map[string]any{"command": "nginx: worker"}},
		"a command's path":           {fields: map[string]any{"command": "/usr/sbin/nginx.d/..x/nginx", "children": true}},
		"the longest command":        {fields: map[string]any{"command": strings.Repeat("é", 127) + "x"}},
		"the deepest command":        {fields: map[string]any{"command": strings.Repeat("/x", 32)}},
		"children of all":            {fields: map[string]any{"children": false}},
		"no containers":              {fields: map[string]any{"containers": []any{}}, want: "containers in body should have at least 1 items"},
		"a container twice":          {fields: map[string]any{"containers": []any{"web", "web"}}, want: "Duplicate value"},
		"a container in words":       {fields: map[string]any{"containers": []any{"web", "the other"}}, want: "containers must be names of containers, like web or istio-proxy"},
		"an empty container":         {fields: map[string]any{"containers": []any{""}}, want: "containers must be names of containers"},
		"a container of 64":          {fields: map[string]any{"containers": []any{strings.Repeat("x", 64)}}, want: "up to 63 of [a-z0-9-]"},
		"too many containers":        {fields: map[string]any{"containers": seventeen()}, want: "must have at most 16 items"},
		"containers as a text":       {fields: map[string]any{"containers": "web"}, want: "must be of type array"},
		"an empty command":           {fields: map[string]any{"command": ""}, want: "command must be a name, like nginx, or a path, like /usr/sbin/nginx"},
		"a command with a zero":      {fields: map[string]any{"command": "ng\x00inx"}, want: "none of them zero"},
		"a command of 256":           {fields: map[string]any{"command": strings.Repeat("x", 256)}, want: "may not be more than 255"},
		"a command of 256 bytes":     {fields: map[string]any{"command": strings.Repeat("é", 128)}, want: "of 1 to 255 bytes"},
		"a command from somewhere":   {fields: map[string]any{"command": "sbin/nginx"}, want: "the whole path of an executable"},
		"a command with a detour":    {fields: map[string]any{"command": "/usr/../sbin/nginx"}, want: "the whole path of an executable"},
		"a command to nowhere":       {fields: map[string]any{"command": "/usr/sbin/"}, want: "the whole path of an executable"},
		"a command too deep":         {fields: map[string]any{"command": strings.Repeat("/x", 33)}, want: "at most 31 directories"},
		"children of nobody":         {fields: map[string]any{"children": true}, want: "set command too, or leave children out"},
		"retainFor too short":        {fields: map[string]any{"retainFor": "5s"}, want: "retainFor must lie between 10s and 168h"},
		"retainFor in words":         {fields: map[string]any{"retainFor": "a while"}, want: "retainFor must be seconds"},
	}
	ns := namespace(t, nil)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), traceObject(ns, with(tc.fields)))
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && err == nil:
				t.Errorf("accepted, want a refusal with %q", tc.want)
			case tc.want != "" && !strings.Contains(err.Error(), tc.want):
				t.Errorf("refused with\n%v\nwant %q in it", err, tc.want)
			}
		})
	}
}

// seventeen containers, one more than may be named.
func seventeen() []any {
	names := make([]any, 17)
	for i := range names {
		names[i] = "c" + strings.Repeat("x", i)
	}
	return names
}

func TestTraceUpdateValidation(t *testing.T) {
	full := map[string]any{
		"jobId": "qwer", "targetNamespace": "shop", "targetDeployment": "web", "duration": "30", "events": []any{"file", "io"}, "minLatency": "1ms",
		"format": "flap", "maxBytes": int64(1 << 20), "maxEvents": int64(5), "followPods": true, "retainFor": "1h",
		"containers": []any{"web", "log"}, "command": "nginx", "children": true,
	}
	cases := map[string]struct {
		field string
		value any // nil removes
		want  string
	}{
		"nothing":                 {field: "jobId", value: "qwer"},
		"stop":                    {field: "stop", value: true},
		"groups in another order": {field: "events", value: []any{"io", "file"}},
		"another jobId":           {field: "jobId", value: "abcd", want: "jobId is immutable"},
		"another namespace":       {field: "targetNamespace", value: "other", want: "targetNamespace is immutable"},
		"another target":          {field: "targetDeployment", value: "db", want: "targetDeployment is immutable"},
		"a targetRef instead":     {field: "targetRef", value: map[string]any{"kind": "Pod", "name": "x"}, want: "targetRef is immutable"},
		"another duration":        {field: "duration", value: "60", want: "duration is immutable: set stop: true"},
		"no duration":             {field: "duration", want: "duration is immutable: set stop: true"},
		"one group more":          {field: "events", value: []any{"file", "io", "process"}, want: "events is immutable"},
		"the default's groups":    {field: "events", want: "events is immutable"},
		"another minLatency":      {field: "minLatency", value: "2ms", want: "minLatency is immutable"},
		"no minLatency":           {field: "minLatency", want: "minLatency is immutable"},
		"the default's format":    {field: "format", want: "format is immutable"},
		"another maxBytes":        {field: "maxBytes", value: int64(1 << 21), want: "maxBytes is immutable"},
		"another maxEvents":       {field: "maxEvents", value: int64(6), want: "maxEvents is immutable"},
		"maxEvents removed":       {field: "maxEvents", want: "maxEvents is immutable"},
		"followPods":              {field: "followPods", value: false, want: "followPods is immutable"},
		"containers reordered":    {field: "containers", value: []any{"log", "web"}},
		"another container":       {field: "containers", value: []any{"web"}, want: "containers is immutable"},
		"all containers":          {field: "containers", want: "containers is immutable"},
		"another command":         {field: "command", value: "sh", want: "command is immutable"},
		"no command":              {field: "command", want: "command is immutable"},
		"no children":             {field: "children", value: false, want: "children is immutable"},
		"children left out":       {field: "children", want: "children is immutable"},
		"retainFor":               {field: "retainFor", value: "2h", want: "retainFor is immutable"},
	}
	ns := namespace(t, nil)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := traceObject(ns, maps.Clone(full))
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			err := update(t, o, tc.field, tc.value)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	stopped := traceObject(ns, with(map[string]any{"stop": true}))
	if err := admin.Create(t.Context(), stopped); err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{false, nil} {
		if err := update(t, stopped, "stop", value); err == nil || !strings.Contains(err.Error(), "a stopped trace cannot be started again") {
			t.Errorf("stop = %v: error %v, want a refusal", value, err)
		}
	}
}

func TestTraceDefaults(t *testing.T) {
	o := traceObject(namespace(t, nil), map[string]any{"targetDeployment": "web"})
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"targetDeployment": "web", "events": []any{"process", "file", "network"}, "format": "ndjson", "maxBytes": int64(1 << 30), "followPods": true, "retainFor": "1h",
	}
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Errorf("spec, which has no duration (-want +got):\n%s", diff)
	}
}
