package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/outcome"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

var dawn = time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)

func gatingTrace() *sondev1.Trace {
	return &sondev1.Trace{
		ObjectMeta: metav1.ObjectMeta{Namespace: "hub", Name: "tr", UID: "t1", CreationTimestamp: metav1.NewTime(dawn)},
		Spec:       sondev1.TraceSpec{Gate: &sondev1.TraceGate{Enabled: true, Timeout: "45s", OnTimeout: sondev1.GateFail}},
		Status: sondev1.CaptureStatus{
			Phase:      sondev1.PhaseCapturing,
			Conditions: []metav1.Condition{{Type: sondev1.ConditionGating, Status: metav1.ConditionTrue}},
		},
	}
}

func TestLive(t *testing.T) {
	gone := metav1.NewTime(dawn)
	tests := map[string]struct {
		change func(*sondev1.Trace)
		want   bool
	}{
		"gating":          {func(*sondev1.Trace) {}, true},
		"no status yet":   {func(t *sondev1.Trace) { t.Status = sondev1.CaptureStatus{} }, false},
		"Gating is False": {func(t *sondev1.Trace) { t.Status.Conditions[0].Status = metav1.ConditionFalse }, false},
		"without a gate":  {func(t *sondev1.Trace) { t.Spec.Gate = nil }, false},
		"gate disabled":   {func(t *sondev1.Trace) { t.Spec.Gate.Enabled = false }, false},
		"asked to stop":   {func(t *sondev1.Trace) { t.Spec.Stop = true }, true},
		"preparing": {func(t *sondev1.Trace) {
			t.Status.Conditions[0].Status, t.Status.Conditions[0].Reason = metav1.ConditionFalse, sondev1.ReasonGatePreparing
		}, true},
		"settling": {func(t *sondev1.Trace) {
			t.Status.Conditions[0].Status, t.Status.Conditions[0].Reason = metav1.ConditionUnknown, sondev1.ReasonGateSettling
		}, true},
		"being deleted": {func(t *sondev1.Trace) { t.DeletionTimestamp = &gone }, false},
		"over":          {func(t *sondev1.Trace) { t.Status.Phase = sondev1.PhaseIncomplete }, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			trace := gatingTrace()
			tc.change(trace)
			if got := Live(trace); got != tc.want {
				t.Errorf("Live() = %t, want %t", got, tc.want)
			}
		})
	}
}

func TestBefore(t *testing.T) {
	a, later, twin := gatingTrace(), gatingTrace(), gatingTrace()
	later.CreationTimestamp = metav1.NewTime(dawn.Add(time.Second))
	later.UID, twin.UID = "a-lower-uid", "t2"
	for name, pair := range map[string][2]*sondev1.Trace{"by age": {a, later}, "same age, by UID": {a, twin}} {
		if !Before(pair[0], pair[1]) || Before(pair[1], pair[0]) {
			t.Errorf("%s: want only the first before the second", name)
		}
	}
	if Before(a, a) {
		t.Error("a Trace is before itself")
	}
}

func TestOfTrace(t *testing.T) {
	started := metav1.NewTime(dawn.Add(time.Hour))
	config := gateconfig.Config{Timeout: 45 * time.Second, OnTimeout: gateconfig.Fail, Until: dawn.Add(target.Timeout + outcome.StartTimeout + time.Minute + overrun)}
	tests := map[string]struct {
		change func(*sondev1.Trace)
		want   func(*gateconfig.Config)
	}{
		"not begun":        {func(*sondev1.Trace) {}, func(*gateconfig.Config) {}},
		"begun":            {func(t *sondev1.Trace) { t.Status.StartTime = &started }, func(c *gateconfig.Config) { c.Until = started.Add(outcome.StartTimeout + time.Minute + overrun) }},
		"its end is known": {func(t *sondev1.Trace) { t.Status.StartTime, t.Status.EndTime = &metav1.Time{}, &started }, func(c *gateconfig.Config) { c.Until = started.Add(overrun) }},
		"the defaults":     {func(t *sondev1.Trace) { t.Spec.Gate = &sondev1.TraceGate{Enabled: true} }, func(c *gateconfig.Config) { c.Timeout, c.OnTimeout = 30*time.Second, gateconfig.Proceed }},
		"in seconds":       {func(t *sondev1.Trace) { t.Spec.Gate.Timeout = "600" }, func(c *gateconfig.Config) { c.Timeout = gateconfig.MaxTimeout }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			trace, want := gatingTrace(), Options{Config: config, Image: "sonde:test", TraceNamespace: "hub", TraceName: "tr", TraceUID: "t1"}
			tc.change(trace)
			tc.want(&want.Config)
			got, err := OfTrace(trace, "sonde:test", time.Minute)
			if err != nil || got.Validate() != nil {
				t.Fatal(err, got.Validate())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
	trace := gatingTrace()
	trace.Spec.Gate.Timeout = "soon"
	if _, err := OfTrace(trace, "sonde:test", time.Minute); err == nil {
		t.Error("a bad timeout is accepted")
	}
}
