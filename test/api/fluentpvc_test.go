//go:build api

package api

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// fluentPVCObject reads a FluentPVC, gives it another name, and changes fields of its spec; nil removes one.
func fluentPVCObject(t *testing.T, file, name string, fields map[string]any) *unstructured.Unstructured {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(b, &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetName(name)
	spec := joined(o.Object["spec"].(map[string]any), fields)
	maps.DeleteFunc(spec, func(_ string, v any) bool { return v == nil })
	o.Object["spec"] = spec
	return o
}

const fluentPVCSample = "../../config/samples/monitoring_v1alpha1_fluentpvc.yaml"

// TestFluentPVCSchema: each rule of the schema accepts and refuses. No webhook is called.
func TestFluentPVCSchema(t *testing.T) {
	// The API server calls the webhook of an earlier test until it has seen that its configuration is deleted.
	poll(t, "no webhook", func() bool {
		return admin.Create(t.Context(), fluentPVCObject(t, fluentPVCSample, "schema", nil), client.DryRunAll) == nil
	})
	type fields = map[string]any
	finalizer := func(name string, value any) fields { return fields{"finalizer": fields{name: value}} }
	const (
		backoffForm = `finalizer.backoff must be seconds, like "30", or hours, minutes and seconds`
		backoff     = "finalizer.backoff must lie between 1s and 1h"
		failedForm  = `finalizer.failedRetention must be seconds, like "86400"`
		failed      = "finalizer.failedRetention must lie between 1m and 8760h"
		keepForm    = `retention must be seconds, like "600"`
		keep        = "retention must be at most 720h"
		volume      = "pvcVolumeName must be a DNS label"
		path        = "pvcVolumeMountPath must be an absolute path without a colon"
		longest     = "the name of a FluentPVC has at most 63 characters"
	)
	for name, tc := range map[string]struct {
		object string // its name; "schema" if empty
		fields fields
		want   string // part of the refusal; empty if accepted
	}{
		"the sample":              {},
		"the longest name":        {object: strings.Repeat("n", 63)},
		"a longer name":           {object: strings.Repeat("n", 64), want: longest},
		"no claim":                {fields: fields{"pvcSpecTemplate": nil}, want: "spec.pvcSpecTemplate: Required value"},
		"no Job":                  {fields: fields{"pvcFinalizerJobSpecTemplate": nil}, want: "spec.pvcFinalizerJobSpecTemplate: Required value"},
		"no sidecar":              {fields: fields{"sidecarContainerTemplate": nil}, want: "spec.sidecarContainerTemplate: Required value"},
		"no volume name":          {fields: fields{"pvcVolumeName": nil}, want: "spec.pvcVolumeName: Required value"},
		"no path":                 {fields: fields{"pvcVolumeMountPath": nil}, want: "spec.pvcVolumeMountPath: Required value"},
		"a sidecar that is text":  {fields: fields{"sidecarContainerTemplate": "x"}, want: "must be of type object"},
		"nothing in common":       {fields: fields{"commonEnvs": nil, "commonVolumes": nil, "commonVolumeMounts": nil}},
		"a volume name of 1":      {fields: fields{"pvcVolumeName": "a"}},
		"a volume name of 63":     {fields: fields{"pvcVolumeName": strings.Repeat("a", 63)}},
		"a volume name of 64":     {fields: fields{"pvcVolumeName": strings.Repeat("a", 64)}, want: volume},
		"a volume name with dots": {fields: fields{"pvcVolumeName": "a.b"}, want: volume},
		"an empty volume name":    {fields: fields{"pvcVolumeName": ""}, want: volume},
		"a deep path":             {fields: fields{"pvcVolumeMountPath": "/var/lib/a b"}},
		"a relative path":         {fields: fields{"pvcVolumeMountPath": "var"}, want: path},
		"the root directory":      {fields: fields{"pvcVolumeMountPath": "/"}, want: path},
		"a path with a colon":     {fields: fields{"pvcVolumeMountPath": "/a:b"}, want: path},

		"a native sidecar":    {fields: fields{"sidecarMode": "Native"}},
		"another sidecar":     {fields: fields{"sidecarMode": "native"}, want: `supported values: "Container", "Native"`},
		"not deleted":         {fields: fields{"deletePodIfSidecarContainerTerminationDetected": false}},
		"not deleted, a text": {fields: fields{"deletePodIfSidecarContainerTerminationDetected": "false"}, want: "must be of type boolean"},

		"kept for seconds":         {fields: fields{"retention": "2592000"}},
		"kept for no time":         {fields: fields{"retention": "0"}},
		"kept for hours":           {fields: fields{"retention": "720h"}},
		"kept for a mixture":       {fields: fields{"retention": "1h30m5s"}},
		"kept a second longer":     {fields: fields{"retention": "2592001"}, want: keep},
		"kept an hour longer":      {fields: fields{"retention": "721h"}, want: keep},
		"kept for days":            {fields: fields{"retention": "1d"}, want: keepForm},
		"kept for a while":         {fields: fields{"retention": "-1"}, want: keepForm},
		"kept for nothing written": {fields: fields{"retention": ""}, want: keepForm},

		"a backoff in seconds":       {fields: finalizer("backoff", "1")},
		"the longest backoff":        {fields: finalizer("backoff", "3600")},
		"the longest in hours":       {fields: finalizer("backoff", "1h")},
		"a backoff too short":        {fields: finalizer("backoff", "0s"), want: backoff},
		"a backoff of 0":             {fields: finalizer("backoff", "0"), want: backoff},
		"a backoff too long":         {fields: finalizer("backoff", "3601"), want: backoff},
		"a backoff in words":         {fields: finalizer("backoff", "soon"), want: backoffForm},
		"a backoff in fractions":     {fields: finalizer("backoff", "1.5s"), want: backoffForm},
		"no backoff written":         {fields: finalizer("backoff", ""), want: backoffForm},
		"failed for a minute":        {fields: finalizer("failedRetention", "60")},
		"failed for a year":          {fields: finalizer("failedRetention", "8760h")},
		"failed for a shorter time":  {fields: finalizer("failedRetention", "59s"), want: failed},
		"failed for a longer time":   {fields: finalizer("failedRetention", "31536001"), want: failed},
		"failed for ever":            {fields: finalizer("failedRetention", "forever"), want: failedForm},
		"failed for nothing written": {fields: finalizer("failedRetention", ""), want: failedForm},
		"one attempt":                {fields: finalizer("maxAttempts", int64(1))},
		"50 attempts":                {fields: finalizer("maxAttempts", int64(50))},
		"no attempt":                 {fields: finalizer("maxAttempts", int64(0)), want: "greater than or equal to 1"},
		"51 attempts":                {fields: finalizer("maxAttempts", int64(51)), want: "less than or equal to 50"},
		"one volume":                 {fields: fields{"maxBindings": int64(1)}},
		"10000 volumes":              {fields: fields{"maxBindings": int64(10000)}},
		"no volume":                  {fields: fields{"maxBindings": int64(0)}, want: "greater than or equal to 1"},
		"10001 volumes":              {fields: fields{"maxBindings": int64(10001)}, want: "less than or equal to 10000"},
	} {
		t.Run(name, func(t *testing.T) {
			object := "schema"
			if tc.object != "" {
				object = tc.object
			}
			o := fluentPVCObject(t, fluentPVCSample, object, tc.fields)
			answered(t, admin.Create(t.Context(), o, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)), tc.want)
		})
	}
}

// TestFluentPVCDefaults: the fields that the source documents have its defaults.
func TestFluentPVCDefaults(t *testing.T) {
	o := fluentPVCObject(t, fluentPVCSample, "defaults", map[string]any{"deletePodIfSidecarContainerTerminationDetected": nil})
	want := o.DeepCopy().Object["spec"].(map[string]any)
	if err := admin.Create(t.Context(), o, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	maps.Copy(want, map[string]any{
		"deletePodIfSidecarContainerTerminationDetected": true, "sidecarMode": "Container", "retention": "0s", "maxBindings": int64(500),
		"finalizer": map[string]any{"maxAttempts": int64(3), "backoff": "10s"},
	})
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// TestFluentPVCBindingSchema: a binding has the template that its FluentPVC had, and never changes.
func TestFluentPVCBindingSchema(t *testing.T) {
	ns := namespace(t, nil)
	binding := func(name string, change func(*sondev1.FluentPVCBindingSpec)) *sondev1.FluentPVCBinding {
		b := &sondev1.FluentPVCBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: sondev1.FluentPVCBindingSpec{
			FluentPVC: sondev1.ObjectReference{Name: "logs", UID: "f-1"}, Pod: sondev1.ObjectReference{Name: "web-0", UID: "p-1"},
		}}
		var f sondev1.FluentPVC
		raw, err := yaml.Marshal(fluentPVCObject(t, fluentPVCSample, "logs", nil).Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(raw, &f); err != nil {
			t.Fatal(err)
		}
		b.Spec.Template = f.Spec
		if change != nil {
			change(&b.Spec)
		}
		return b
	}
	for name, tc := range map[string]struct {
		change func(*sondev1.FluentPVCBindingSpec)
		want   string
	}{
		"as the manager writes it": {},
		"no FluentPVC":             {func(s *sondev1.FluentPVCBindingSpec) { s.FluentPVC = sondev1.ObjectReference{} }, "spec.fluentPVC"},
		"no Pod":                   {func(s *sondev1.FluentPVCBindingSpec) { s.Pod = sondev1.ObjectReference{} }, "spec.pod"},
		"a Pod without UID":        {func(s *sondev1.FluentPVCBindingSpec) { s.Pod.UID = "" }, "spec.pod.uid"},
		"a long Pod name":          {func(s *sondev1.FluentPVCBindingSpec) { s.Pod.Name = strings.Repeat("p", 254) }, "spec.pod.name"},
		"a bad template":           {func(s *sondev1.FluentPVCBindingSpec) { s.Template.Retention = "soon" }, "retention must be seconds"},
	} {
		t.Run(name, func(t *testing.T) {
			answered(t, admin.Create(t.Context(), binding("b", tc.change), client.DryRunAll), tc.want)
		})
	}
	b := binding("kept", nil)
	if err := admin.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	b.Labels = map[string]string{"a": "b"}
	answered(t, admin.Update(t.Context(), b), "")
	b.Status = sondev1.FluentPVCBindingStatus{Phase: sondev1.BindingReady}
	answered(t, admin.Status().Update(t.Context(), b), "")
	b.Status.Phase = "Lost"
	answered(t, admin.Status().Update(t.Context(), b), "status.phase: Unsupported value")
	b.Status.Phase = sondev1.BindingReady
	b.Spec.Template.Retention = "1h"
	answered(t, admin.Update(t.Context(), b), "a FluentPVCBinding is immutable")
}

// sonde creates the operator's namespace.
func sonde(t *testing.T) {
	t.Helper()
	err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
