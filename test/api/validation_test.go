//go:build api

package api

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object builds a PacketCapture as a user writes it.
func object(ns string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "monitoring.openshift.tpg/v1alpha1", "kind": "PacketCapture",
		"metadata": map[string]any{"generateName": "c-", "namespace": ns},
		"spec":     spec,
	}}
}

// with returns a valid spec with the given fields changed; nil removes one.
func with(fields map[string]any) map[string]any {
	spec := map[string]any{"targetDeployment": "web", "duration": "30"}
	maps.Copy(spec, fields)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	return spec
}

func TestCreateValidation(t *testing.T) {
	long := strings.Repeat("x", 5000)
	cases := map[string]struct {
		fields map[string]any
		want   string // part of the refusal; empty: accepted
	}{
		"the source's fields":          {fields: map[string]any{"jobId": "qwer", "targetNamespace": "openshift-gitops"}},
		"no duration":                  {fields: map[string]any{"duration": nil}},
		"no jobId":                     {},
		"duration in seconds":          {fields: map[string]any{"duration": "86400"}},
		"duration with units":          {fields: map[string]any{"duration": "1h30m"}},
		"duration in minutes":          {fields: map[string]any{"duration": "5m"}},
		"targetRef":                    {fields: map[string]any{"targetDeployment": nil, "targetRef": map[string]any{"kind": "StatefulSet", "name": "db"}}},
		"all limits":                   {fields: map[string]any{"maxBytes": int64(65536), "maxPackets": int64(1), "snapLength": int64(96), "filter": "tcp port 80"}},
		"interfaces":                   {fields: map[string]any{"interfaces": []any{"eth0", "lo"}}},
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
		"filter too long":              {fields: map[string]any{"filter": long}, want: "Too long: may not be more than 4096"},
		"snapLength zero":              {fields: map[string]any{"snapLength": int64(0)}, want: "snapLength in body should be greater than or equal to 16"},
		"snapLength too large":         {fields: map[string]any{"snapLength": int64(262145)}, want: "less than or equal to 262144"},
		"maxBytes zero":                {fields: map[string]any{"maxBytes": int64(0)}, want: "greater than or equal to 65536"},
		"maxBytes negative":            {fields: map[string]any{"maxBytes": int64(-1)}, want: "greater than or equal to 65536"},
		"maxBytes too large":           {fields: map[string]any{"maxBytes": int64(1<<40 + 1)}, want: "less than or equal to 1099511627776"},
		"maxPackets zero":              {fields: map[string]any{"maxPackets": int64(0)}, want: "greater than or equal to 1"},
		"maxPackets negative":          {fields: map[string]any{"maxPackets": int64(-5)}, want: "greater than or equal to 1"},
		"a ring":                       {fields: map[string]any{"rotate": ring(65536, 2)}},
		"a ring that just fits":        {fields: map[string]any{"maxBytes": int64(16 << 20), "rotate": ring(1<<20, 16)}},
		"a ring above maxBytes":        {fields: map[string]any{"maxBytes": int64(16<<20 - 1), "rotate": ring(1<<20, 16)}, want: "rotate.maxBytes times rotate.files must not be above maxBytes"},
		"a ring above the default":     {fields: map[string]any{"rotate": ring(1<<29+1, 2)}, want: "write smaller or fewer files, or a larger maxBytes"},
		"a ring of very large files":   {fields: map[string]any{"rotate": ring(1<<40, 16)}, want: "rotate.maxBytes times rotate.files must not be above maxBytes"},
		"a ring of one file":           {fields: map[string]any{"rotate": ring(65536, 1)}, want: "rotate.files in body should be greater than or equal to 2"},
		"a ring of no files":           {fields: map[string]any{"rotate": map[string]any{"maxBytes": int64(65536)}}, want: "rotate.files: Required value"},
		"a ring of many files":         {fields: map[string]any{"rotate": ring(65536, 17)}, want: "rotate.files in body should be less than or equal to 16"},
		"a ring of tiny files":         {fields: map[string]any{"rotate": ring(65535, 2)}, want: "rotate.maxBytes in body should be greater than or equal to 65536"},
		"a ring of negative files":     {fields: map[string]any{"rotate": ring(-65536, 2)}, want: "rotate.maxBytes in body should be greater than or equal to 65536"},
		"a ring of no size":            {fields: map[string]any{"rotate": map[string]any{"files": int64(2)}}, want: "rotate.maxBytes: Required value"},
		"an empty ring":                {fields: map[string]any{"rotate": map[string]any{}}, want: "Required value"},
		"a ring in words":              {fields: map[string]any{"rotate": "1Mi:5"}, want: "must be of type object"},
		"empty list of interfaces":     {fields: map[string]any{"interfaces": []any{}}, want: "interfaces in body should have at least 1 items"},
		"interface twice":              {fields: map[string]any{"interfaces": []any{"eth0", "eth0"}}, want: "Duplicate value"},
		"interface with a slash":       {fields: map[string]any{"interfaces": []any{"../eth0"}}, want: "interfaces[0]"},
		"interface with an escape":     {fields: map[string]any{"interfaces": []any{"a\x1b[2J"}}, want: "interfaces[0]"},
		"interface name too long":      {fields: map[string]any{"interfaces": []any{"an-interface-name"}}, want: "may not be more than 15"},
		"too many interfaces":          {fields: map[string]any{"interfaces": []any{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f", "g"}}, want: "must have at most 16 items"},
		"retainFor too short":          {fields: map[string]any{"retainFor": "5s"}, want: "retainFor must lie between 10s and 168h"},
		"retainFor too long":           {fields: map[string]any{"retainFor": "169h"}, want: "retainFor must lie between 10s and 168h"},
		"retainFor in words":           {fields: map[string]any{"retainFor": "a while"}, want: "retainFor must be seconds"},
	}
	ns := namespace(t, nil)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			err := admin.Create(t.Context(), object(ns, with(tc.fields)))
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

// ring is spec.rotate.
func ring(maxBytes, files int64) map[string]any {
	return map[string]any{"maxBytes": maxBytes, "files": files}
}

func TestUpdateValidation(t *testing.T) {
	full := map[string]any{
		"jobId": "qwer", "targetNamespace": "shop", "targetDeployment": "web", "duration": "30", "filter": "tcp", "snapLength": int64(96),
		"interfaces": []any{"eth0"}, "maxBytes": int64(1 << 20), "maxPackets": int64(5), "followPods": true, "retainFor": "1h",
		"rotate": ring(65536, 4),
	}
	cases := map[string]struct {
		field string
		value any // nil removes
		want  string
	}{
		"nothing":                    {field: "jobId", value: "qwer"},
		"stop":                       {field: "stop", value: true},
		"another jobId":              {field: "jobId", value: "abcd", want: "jobId is immutable"},
		"jobId removed":              {field: "jobId", want: "jobId is immutable"},
		"another namespace":          {field: "targetNamespace", value: "other", want: "targetNamespace is immutable"},
		"namespace removed":          {field: "targetNamespace", want: "targetNamespace is immutable"},
		"another target":             {field: "targetDeployment", value: "db", want: "targetDeployment is immutable"},
		"another duration":           {field: "duration", value: "60", want: "duration is immutable: set stop: true"},
		"another filter":             {field: "filter", value: "udp", want: "filter is immutable"},
		"filter removed":             {field: "filter", want: "filter is immutable"},
		"another snapLength":         {field: "snapLength", value: int64(128), want: "snapLength is immutable"},
		"another list of interfaces": {field: "interfaces", value: []any{"lo"}, want: "interfaces is immutable"},
		"another maxBytes":           {field: "maxBytes", value: int64(1 << 21), want: "maxBytes is immutable"},
		"another maxPackets":         {field: "maxPackets", value: int64(6), want: "maxPackets is immutable"},
		"maxPackets removed":         {field: "maxPackets", want: "maxPackets is immutable"},
		"larger files of the ring":   {field: "rotate", value: ring(65537, 4), want: "rotate is immutable"},
		"more files in the ring":     {field: "rotate", value: ring(65536, 5), want: "rotate is immutable"},
		"no ring any more":           {field: "rotate", want: "rotate is immutable"},
		"followPods":                 {field: "followPods", value: false, want: "followPods is immutable"},
		"retainFor":                  {field: "retainFor", value: "2h", want: "retainFor is immutable"},
		"a targetRef instead":        {field: "targetRef", value: map[string]any{"kind": "Pod", "name": "x"}, want: "targetRef is immutable"},
	}
	ns := namespace(t, nil)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := object(ns, maps.Clone(full))
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
}

func TestStopCannotBeTakenBack(t *testing.T) {
	o := object(namespace(t, nil), with(map[string]any{"stop": true}))
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, value := range []any{false, nil} {
		if err := update(t, o, "stop", value); err == nil || !strings.Contains(err.Error(), "cannot be started again") {
			t.Errorf("stop = %v: error %v, want a refusal", value, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	o := object(namespace(t, nil), map[string]any{"targetDeployment": "web"})
	if err := admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	for field, want := range map[string]any{
		"duration": "60s", "snapLength": int64(262144), "maxBytes": int64(1 << 30), "followPods": true, "retainFor": "1h",
	} {
		if spec[field] != want {
			t.Errorf("%s = %v, want %v", field, spec[field], want)
		}
	}
}

// update sets or removes one field of the spec of o as the server has it.
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
