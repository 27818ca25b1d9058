//go:build api

package api

import (
	"context"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/client/clientset/versioned"
	"github.com/sonde-operator/sonde/client/example"
)

// TestClient runs the example of the typed client against a real API server. The test writes the status in place of the operator.
func TestClient(t *testing.T) {
	ns := namespace(t, nil)
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // The second call changes nothing.
		if err := example.Install(ctx, client, ns, "collector", ns); err != nil {
			t.Fatal(err)
		}
	}
	collectors := client.MonitoringV1alpha1().Collectors(ns)
	c, err := collectors.Get(ctx, "collector", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Generation != 1 || c.Spec.Drift != sondev1.DriftRepair {
		t.Errorf("generation %d and drift %s, want 1 and Repair", c.Generation, c.Spec.Drift)
	}
	type result struct {
		collector *sondev1.Collector
		err       error
	}
	ready := make(chan result, 1)
	go func() {
		c, err := example.WaitReady(ctx, client, ns, "collector")
		ready <- result{c, err}
	}()
	c.Status.ObservedGeneration = c.Generation
	apimeta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: sondev1.ConditionReady, Status: metav1.ConditionTrue, Reason: "UpToDate"})
	if _, err := collectors.UpdateStatus(ctx, c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if r := <-ready; r.err != nil || !apimeta.IsStatusConditionTrue(r.collector.Status.Conditions, sondev1.ConditionReady) {
		t.Errorf("waiting returned %v, %v", r.collector, r.err)
	}
}
