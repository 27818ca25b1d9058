//go:build e2e

package trace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A thousand dry runs, and a thousand Pods that a later webhook refuses, leave nothing behind: the operator writes
// nothing because of them.
func TestGateLeavesNothing(t *testing.T) {
	const requests = 1000
	d := cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle")
	tr := cluster.GatedTrace(t, d, sondev1.TraceGate{})
	cluster.AwaitCapturing(t, tr)
	cluster.Eventually(t, time.Minute, "5 s without writes", cluster.QuietFor(t, 5*time.Second))
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(tr), tr); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	one := []*corev1.Pod{cluster.OnePod(t, d, false), cluster.OnePod(t, d, true)}
	for i := range requests {
		p := one[i%2].DeepCopy()
		if err := cluster.Admin.Create(t.Context(), p, client.DryRunAll); err != nil || !cluster.IsGated(p) {
			t.Fatalf("dry run %d: got error %v, gated %t; want it accepted with a gate", i, err, cluster.IsGated(p))
		}
	}
	cluster.RefusePods(t, d.Namespace)
	for i := range requests {
		if err := cluster.Admin.Create(t.Context(), one[i%2].DeepCopy()); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			t.Fatalf("create %d: %v", i, err)
		}
	}
	cluster.Eventually(t, 30*time.Second, "all requests in the audit log", func(context.Context) error {
		changed := 0
		for _, e := range cluster.AuditEvents(t, from) {
			if e.Verb == "create" && e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == d.Namespace && e.ResponseStatus.Code == 403 && gateChanged(&e) {
				changed++
			}
		}
		if changed != requests {
			return fmt.Errorf("the gate's webhook has changed %[2]d of %[1]d refused Pods", requests, changed)
		}
		return nil
	})
	reviews := func(e cluster.AuditEvent) bool { return strings.HasSuffix(e.ObjectRef.Resource, "reviews") }
	if wrote := slices.DeleteFunc(cluster.ManagerWrites(t, from), reviews); len(wrote) > 0 {
		t.Errorf("the operator wrote %v, want nothing", wrote.ByVerb())
	}
	if pods := cluster.ReadyPods(t, d, 1); len(pods) != 1 || len(cluster.JobsOf(t, tr)) != 1 {
		t.Errorf("got %d Pods and %d Jobs, want none", len(pods), len(cluster.JobsOf(t, tr)))
	}
	now := &sondev1.Trace{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(tr), now); err != nil || now.ResourceVersion != tr.ResourceVersion {
		t.Errorf("the Trace has changed, want no writes (%v): %+v", err, now.Status)
	}
}

// gateChanged reports whether the gate's webhook changed the Pod of a request, according to the API server's audit
// annotations.
func gateChanged(e *cluster.AuditEvent) bool {
	for _, note := range e.Annotations {
		if strings.Contains(note, `"configuration":"sonde-pods"`) && strings.Contains(note, `"mutated":true`) {
			return true
		}
	}
	return false
}

// mainContainer returns the status of container c, or nil.
func mainContainer(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == "c" {
			return p.Status.ContainerStatuses[i].DeepCopy()
		}
	}
	return nil
}
