package gate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/access"
	"github.com/sonde-operator/sonde/internal/operator/ceiling"
	"github.com/sonde-operator/sonde/internal/operator/stamp"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/webhooks/webhooktest"
)

// gating is a Trace of Deployment shop/web, made in a hub, that has its new Pods gated.
func gating(t *testing.T, name string, change func(*sondev1.Trace)) *sondev1.Trace {
	t.Helper()
	trace := &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(webhooktest.Now.Add(-time.Minute))},
		Spec: sondev1.TraceSpec{
			TargetNamespace: "shop", TargetDeployment: "web", RetainFor: "1h",
			Gate: &sondev1.TraceGate{Enabled: true, Timeout: "30s", OnTimeout: sondev1.GateProceed},
		},
		Status: sondev1.CaptureStatus{
			Phase:      sondev1.PhasePending,
			Conditions: []metav1.Condition{{Type: sondev1.ConditionGating, Status: metav1.ConditionTrue}},
		},
	}
	if change != nil {
		change(trace)
	}
	sign(t, trace, "uid-shop")
	return trace
}

// gatingIn is the same for a namespace shop of that UID.
func gatingIn(t *testing.T, uid string) *sondev1.Trace {
	t.Helper()
	trace := gating(t, "a", nil)
	trace.Annotations = nil
	sign(t, trace, uid)
	return trace
}

func sign(t *testing.T, trace *sondev1.Trace, namespaceUID string) {
	t.Helper()
	claim := stamp.Claim{Requester: access.Requester{Username: "alice"}, TargetNamespaceUID: namespaceUID, IssuedAt: trace.CreationTimestamp.Time}
	signed, err := stamp.Sign(webhooktest.Key, trace.Namespace, trace.KindName(), &trace.Spec, claim)
	if err != nil {
		t.Fatal(err)
	}
	if trace.Annotations == nil {
		trace.Annotations = map[string]string{}
	}
	maps.Copy(signed, trace.Annotations) // the test may override the stamp
	trace.Annotations = signed
}

func aimedAt(kind sondev1.TargetKind, name string) func(*sondev1.Trace) {
	return func(t *sondev1.Trace) {
		t.Spec.TargetDeployment, t.Spec.TargetRef = "", &sondev1.TargetReference{Kind: kind, Name: name}
	}
}

func replicaSet(name, deployment string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: webhooktest.Meta("shop", name)}
	if deployment != "" {
		set.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment, UID: "d", Controller: new(true)}}
	}
	return set
}

func newPod(name, kind, owner string) *metav1.ObjectMeta {
	pod := &metav1.ObjectMeta{Name: name, GenerateName: "generated-"} // neither namespace nor UID, as it comes
	if kind != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Other", Name: "web"}, {APIVersion: "apps/v1", Kind: kind, Name: owner, UID: "o", Controller: new(true)}}
	}
	return pod
}

// traceGates reads cached from the cache and live from the API server.
func traceGates(t *testing.T, funcs interceptor.Funcs, cached, live []client.Object) *TraceLookup {
	t.Helper()
	build := func(objects []client.Object) client.WithWatch {
		b := fake.NewClientBuilder().WithScheme(webhooktest.Scheme(t)).WithObjects(objects...).
			WithIndex(&appsv1.ReplicaSet{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} })
		for _, i := range target.Indexes {
			if _, ok := i.Object.(*sondev1.Trace); ok {
				b = b.WithIndex(i.Object, i.Field, i.Extract)
			}
		}
		return b.Build()
	}
	cached = append(slices.Clone(cached), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "uid-shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "hub", UID: "uid-hub"}})
	return &TraceLookup{
		Cache: interceptor.NewClient(build(cached), funcs), Live: interceptor.NewClient(build(live), funcs),
		Key: webhooktest.Key, Image: "sonde:test", Ceilings: ceiling.Limits{Duration: time.Hour}, Clock: clocktesting.NewFakePassiveClock(webhooktest.Now),
	}
}

func TestTraceGates(t *testing.T) {
	started := metav1.NewTime(webhooktest.Now.Add(-30 * time.Second))
	minutes := metav1.NewTime(webhooktest.Now.Add(-time.Minute))
	webPod := newPod("", "ReplicaSet", "web-1")
	tests := map[string]struct {
		traces    []*sondev1.Trace
		namespace string // default shop
		pod       *metav1.ObjectMeta
		uncached  bool   // the ReplicaSets are not in the cache yet
		want      string // the Trace; empty: none
	}{
		"a Deployment's Pod":               {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: webPod, want: "a"},
		"its ReplicaSet is new":            {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: webPod, uncached: true, want: "a"},
		"another Deployment's":             {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: newPod("", "ReplicaSet", "other-1")},
		"of a ReplicaSet without an owner": {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: newPod("", "ReplicaSet", "bare")},
		"of a ReplicaSet that is gone":     {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: newPod("", "ReplicaSet", "gone")},
		"a StatefulSet's":                  {traces: []*sondev1.Trace{gating(t, "a", aimedAt("StatefulSet", "db"))}, pod: newPod("db-0", "StatefulSet", "db"), want: "a"},
		"another kind of that name":        {traces: []*sondev1.Trace{gating(t, "a", aimedAt("StatefulSet", "web"))}, pod: webPod},
		"a DaemonSet's":                    {traces: []*sondev1.Trace{gating(t, "a", aimedAt("DaemonSet", "ds"))}, pod: newPod("", "DaemonSet", "ds"), want: "a"},
		"a bare Pod":                       {traces: []*sondev1.Trace{gating(t, "a", aimedAt("Pod", "one"))}, pod: newPod("one", "", ""), want: "a"},
		"one of a StatefulSet, by name":    {traces: []*sondev1.Trace{gating(t, "a", aimedAt("Pod", "db-0"))}, pod: newPod("db-0", "StatefulSet", "db"), want: "a"},
		"a bare Pod without a name yet":    {traces: []*sondev1.Trace{gating(t, "a", aimedAt("Pod", "one"))}, pod: newPod("", "", "")},
		"a Job's":                          {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: newPod("", "Job", "web")},
		"of an earlier namespace":          {traces: []*sondev1.Trace{gatingIn(t, "uid-earlier")}, pod: webPod},
		"in another namespace":             {traces: []*sondev1.Trace{gating(t, "a", nil)}, pod: webPod, namespace: "hub"},
		"no Trace":                         {pod: webPod},
		"without a gate":                   {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Spec.Gate = nil })}, pod: webPod},
		"not admitted, or without room":    {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Status.Conditions = nil })}, pod: webPod},
		"an invalid stamp":                 {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Annotations = map[string]string{sondev1.AnnotationStamp: "00"} })}, pod: webPod},
		"over":                             {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Status.Phase = sondev1.PhaseCompleted })}, pod: webPod},
		"its probes attach late":           {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Status.StartTime, t.Spec.Duration = &started, "5" })}, pod: webPod, want: "a"},
		"its end was noticed by no one":    {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Status.StartTime, t.Status.EndTime = &started, &started })}, pod: webPod, want: "a"},
		"and that for a minute":            {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Status.StartTime, t.Status.EndTime = &minutes, &minutes })}, pod: webPod},
		"asked to stop":                    {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.Spec.Stop = true })}, pod: webPod, want: "a"},
		"of two the older":                 {traces: []*sondev1.Trace{gating(t, "a", func(t *sondev1.Trace) { t.CreationTimestamp = metav1.NewTime(webhooktest.Now.Add(-time.Second)) }), gating(t, "b", nil)}, pod: webPod, want: "b"},
		"of two as old, by UID":            {traces: []*sondev1.Trace{gating(t, "b", nil), gating(t, "a", nil)}, pod: webPod, want: "a"},
		"the older is another workload's":  {traces: []*sondev1.Trace{gating(t, "a", aimedAt("Pod", "one")), gating(t, "b", nil)}, pod: webPod, want: "b"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			sets := []client.Object{replicaSet("web-1", "web"), replicaSet("other-1", "other"), replicaSet("bare", "")}
			var cached []client.Object
			for _, trace := range tc.traces {
				cached = append(cached, trace)
			}
			if !tc.uncached {
				cached = append(cached, sets...)
			}
			if tc.namespace == "" {
				tc.namespace = "shop"
			}
			o, gated, err := traceGates(t, interceptor.Funcs{}, cached, sets).Find(t.Context(), tc.namespace, tc.pod)
			if err != nil || o.TraceUID != tc.want || gated != (tc.want != "") {
				t.Fatalf("gated %t by %q (%v), want %q", gated, o.TraceUID, err, tc.want)
			}
			if gated && o.Validate() != nil {
				t.Errorf("options %+v: %v", o, o.Validate())
			}
		})
	}
}

func TestTraceGatesOptions(t *testing.T) {
	trace := gating(t, "a", func(t *sondev1.Trace) {
		t.Spec.Gate.Timeout, t.Spec.Gate.OnTimeout, t.Status.StartTime = "90", sondev1.GateFail, &metav1.Time{Time: webhooktest.Now.Add(-6 * time.Minute)}
	})
	g := traceGates(t, interceptor.Funcs{}, []client.Object{trace, replicaSet("web-1", "web")}, nil)
	o, _, err := g.Find(t.Context(), "shop", newPod("", "ReplicaSet", "web-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := gateconfig.Config{Timeout: 90 * time.Second, OnTimeout: gateconfig.Fail, Until: webhooktest.Now.Add(time.Hour)}
	if diff := cmp.Diff(want, o.Config); diff != "" || o.Image != "sonde:test" || o.TraceNamespace+"/"+o.TraceName != "hub/a" {
		t.Errorf("options %+v (-want +got):\n%s", o, diff)
	}
}

// An object that cannot be read is an error, and never counts as no Trace.
func TestTraceGatesErrors(t *testing.T) {
	boom := errors.New("no connection")
	for name, funcs := range map[string]interceptor.Funcs{
		"lists": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return boom }},
		"gets": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return boom
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := traceGates(t, funcs, []client.Object{gating(t, "a", nil)}, nil)
			if _, gated, err := g.Find(t.Context(), "shop", newPod("", "ReplicaSet", "web-1")); gated || !errors.Is(err, boom) {
				t.Errorf("gated %t, error %v", gated, err)
			}
		})
	}
}
