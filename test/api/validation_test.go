//go:build api

package api

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/cli/capture"
)

// creation is a spec that a user writes.
type creation struct {
	fields map[string]any // changes, as with takes them
	want   string         // part of the refusal; empty if accepted
}

// change of one field of a spec.
type change struct {
	field string
	value any    // nil removes
	want  string // part of the refusal; empty if accepted
}

// captureKind lists the tests of one kind, besides the tests that both kinds share.
type captureKind struct {
	object    func(ns string, spec map[string]any) *unstructured.Unstructured
	creations map[string]creation
	full      map[string]any // a spec with all fields that the changes touch, besides fullSpec
	changes   map[string]change
	defaults  map[string]any // of a spec that only names a target
}

var captureKinds = map[string]captureKind{
	"PacketCapture": {object, packetCaptureCreations, fullPacketCapture, packetCaptureChanges, map[string]any{"duration": "60s", "snapLength": int64(262144), "engine": "auto"}},
	"Trace":         {traceObject, traceCreations, fullTrace, traceChanges, map[string]any{"events": []any{"process", "file", "network"}, "format": "ndjson"}},
}

// object builds a PacketCapture as a user writes it.
func object(ns string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "monitoring.openshift.tpg/v1alpha1", "kind": "PacketCapture",
		"metadata": map[string]any{"generateName": "c-", "namespace": ns},
		"spec":     spec,
	}}
}

// traceObject builds a Trace as a user writes it.
func traceObject(ns string, spec map[string]any) *unstructured.Unstructured {
	o := object(ns, spec)
	o.SetKind("Trace")
	return o
}

// with returns a valid spec with the given fields changed; nil removes a field.
func with(fields map[string]any) map[string]any {
	spec := joined(map[string]any{"targetDeployment": "web", "duration": "30"}, fields)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	return spec
}

// joined merges two maps; the second one wins.
func joined[V any](a, b map[string]V) map[string]V {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// answered fails unless the API server's answer contains want, or accepts the request if want is empty.
func answered(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused with %.500v, want it accepted", err)
	case want != "" && err == nil:
		t.Errorf("accepted, want a refusal that contains %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with\n%.1000v\nwant a refusal that contains %q", err, want)
	}
}

// creations of both kinds.
var creations = map[string]creation{
	"the source's fields":          {fields: map[string]any{"jobId": "qwer", "targetNamespace": "openshift-gitops"}},
	"no duration":                  {fields: map[string]any{"duration": nil}},
	"no jobId":                     {},
	"duration in seconds":          {fields: map[string]any{"duration": "86400"}},
	"duration with units":          {fields: map[string]any{"duration": "1h30m"}},
	"duration in minutes":          {fields: map[string]any{"duration": "5m"}},
	"targetRef":                    {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "StatefulSet", "name": "db"}}},
	"targetRef to a DaemonSet":     {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "DaemonSet", "name": "log"}}},
	"no following":                 {fields: map[string]any{"followPods": false}},
	"retained a week":              {fields: map[string]any{"retainFor": "168h"}},
	"jobId too long":               {fields: map[string]any{"jobId": "qwert"}, want: "jobId must be four characters of [a-z0-9], like qwer"},
	"jobId too short":              {fields: map[string]any{"jobId": "qwe"}, want: "jobId must be four characters"},
	"jobId in capitals":            {fields: map[string]any{"jobId": "QWER"}, want: "jobId must be four characters"},
	"jobId with a dash":            {fields: map[string]any{"jobId": "a-bc"}, want: "jobId must be four characters"},
	"no target":                    {fields: map[string]any{"targetDeployment": nil}, want: "name a target: set targetDeployment"},
	"empty target":                 {fields: map[string]any{"targetDeployment": ""}, want: "targetDeployment must be the name of a Deployment"},
	"two targets":                  {fields: map[string]any{"targetRef": map[string]any{"kind": "Pod", "name": "a"}}, want: "two targets at once"},
	"target name with a path":      {fields: map[string]any{"targetDeployment": "../web"}, want: "targetDeployment must be the name of a Deployment"},
	"unknown target kind":          {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "CronJob", "name": "a"}}, want: `supported values: "Deployment", "StatefulSet", "DaemonSet", "Pod"`},
	"targetRef without name":       {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "Pod"}}, want: "targetRef.name: Required value"},
	"namespace with a slash":       {fields: map[string]any{"targetNamespace": "a/b"}, want: "targetNamespace must be the name of a namespace"},
	"duration in words":            {fields: map[string]any{"duration": "forever"}, want: `duration must be seconds, like "30"`},
	"empty duration":               {fields: map[string]any{"duration": ""}, want: `duration must be seconds, like "30"`},
	"duration zero":                {fields: map[string]any{"duration": "0"}, want: "duration must lie between 1s and 24h"},
	"duration 0s":                  {fields: map[string]any{"duration": "0s"}, want: "duration must lie between 1s and 24h"},
	"negative duration":            {fields: map[string]any{"duration": "-30"}, want: `duration must be seconds, like "30"`},
	"fractions":                    {fields: map[string]any{"duration": "1.5s"}, want: `duration must be seconds, like "30"`},
	"days":                         {fields: map[string]any{"duration": "1d"}, want: `duration must be seconds, like "30"`},
	"duration too long":            {fields: map[string]any{"duration": "25h"}, want: "duration must lie between 1s and 24h"},
	"duration too long in seconds": {fields: map[string]any{"duration": "86401"}, want: "duration must lie between 1s and 24h"},
	"duration as a number":         {fields: map[string]any{"duration": int64(30)}, want: `must be of type string`},
	"maxBytes zero":                {fields: map[string]any{"maxBytes": int64(0)}, want: "greater than or equal to 65536"},
	"maxBytes negative":            {fields: map[string]any{"maxBytes": int64(-1)}, want: "greater than or equal to 65536"},
	"maxBytes too large":           {fields: map[string]any{"maxBytes": int64(1<<40 + 1)}, want: "less than or equal to 1099511627776"},
	"retainFor too short":          {fields: map[string]any{"retainFor": "5s"}, want: "retainFor must lie between 10s and 168h"},
	"retainFor too long":           {fields: map[string]any{"retainFor": "169h"}, want: "retainFor must lie between 10s and 168h"},
	"retainFor in words":           {fields: map[string]any{"retainFor": "a while"}, want: "retainFor must be seconds"},
	"maxBytes too small":           {fields: map[string]any{"maxBytes": int64(65535)}, want: "greater than or equal to 65536"},
}

func TestCreateValidation(t *testing.T) {
	ns := namespace(t, nil)
	for kind, of := range captureKinds {
		for name, tc := range joined(creations, of.creations) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				answered(t, admin.Create(t.Context(), of.object(ns, with(tc.fields))), tc.want)
			})
		}
	}
}

// fullSpec has the fields of both kinds that the changes touch.
var fullSpec = map[string]any{
	"jobId": "qwer", "targetNamespace": "shop", "targetDeployment": "web", "duration": "30", "maxBytes": int64(1 << 20), "followPods": true, "retainFor": "1h",
}

// changes of both kinds.
var changes = map[string]change{
	"nothing":             {field: "jobId", value: "qwer"},
	"stop":                {field: "stop", value: true},
	"another jobId":       {field: "jobId", value: "abcd", want: "jobId is immutable"},
	"jobId removed":       {field: "jobId", want: "jobId is immutable"},
	"another namespace":   {field: "targetNamespace", value: "other", want: "targetNamespace is immutable"},
	"namespace removed":   {field: "targetNamespace", want: "targetNamespace is immutable"},
	"another target":      {field: "targetDeployment", value: "db", want: "targetDeployment is immutable"},
	"another duration":    {field: "duration", value: "60", want: "duration is immutable: set stop: true"},
	"duration removed":    {field: "duration", want: "duration is immutable: set stop: true"},
	"another maxBytes":    {field: "maxBytes", value: int64(1 << 21), want: "maxBytes is immutable"},
	"followPods":          {field: "followPods", value: false, want: "followPods is immutable"},
	"retainFor":           {field: "retainFor", value: "2h", want: "retainFor is immutable"},
	"a targetRef instead": {field: "targetRef", value: map[string]any{"kind": "Pod", "name": "x"}, want: "targetRef is immutable"},
}

func TestUpdateValidation(t *testing.T) {
	ns := namespace(t, nil)
	for kind, of := range captureKinds {
		for name, tc := range joined(changes, of.changes) {
			t.Run(kind+"/"+name, func(t *testing.T) {
				o := of.object(ns, joined(fullSpec, of.full))
				create(t, o)
				answered(t, update(t, o, tc.field, tc.value), tc.want)
			})
		}
	}
}

func TestStopCannotBeTakenBack(t *testing.T) {
	ns := namespace(t, nil)
	for _, of := range captureKinds {
		o := of.object(ns, with(map[string]any{"stop": true}))
		create(t, o)
		for _, value := range []any{false, nil} {
			answered(t, update(t, o, "stop", value), "cannot be started again")
		}
	}
}

// The plugin stops the object that it made or found, not a later one of the same name.
func TestStopIsForOneObject(t *testing.T) {
	ns := namespace(t, nil)
	o := captureKinds["PacketCapture"].object(ns, with(nil))
	create(t, o)
	pc := &v1alpha1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: o.GetName(), UID: "another"}}
	if err := capture.SetStop(t.Context(), admin, pc); !apierrors.IsInvalid(err) {
		t.Errorf("stop of another object: %v, want the error that Follow shows without trying again", err)
	}
	pc = &v1alpha1.PacketCapture{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), pc); err != nil || pc.Spec.Stop {
		t.Fatalf("stop is %t after a request to stop another object (%v)", pc.Spec.Stop, err)
	}
	if err := capture.SetStop(t.Context(), admin, pc); err != nil || !pc.Spec.Stop {
		t.Errorf("stop is %t: %v", pc.Spec.Stop, err)
	}
}

func TestDefaults(t *testing.T) {
	ns := namespace(t, nil)
	for kind, of := range captureKinds {
		o := of.object(ns, map[string]any{"targetDeployment": "web"})
		create(t, o)
		want := joined(map[string]any{"targetDeployment": "web", "maxBytes": int64(1 << 30), "followPods": true, "retainFor": "1h"}, of.defaults)
		if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
			t.Errorf("%s, spec (-want +got):\n%s", kind, diff)
		}
	}
}

// update sets or removes one field of the spec of o, starting from the server's copy.
func update(t *testing.T, o *unstructured.Unstructured, field string, value any) error {
	t.Helper()
	live := o.DeepCopy()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
		t.Fatal(err)
	}
	if value == nil {
		unstructured.RemoveNestedField(live.Object, "spec", field)
	} else if err := unstructured.SetNestedField(live.Object, value, "spec", field); err != nil {
		t.Fatal(err)
	}
	return admin.Update(t.Context(), live)
}
