//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// A thousand dry runs, and a thousand Pods that something behind the webhook refuses, leave nothing: the operator writes not
// a word because of them.
func TestGateLeavesNothing(t *testing.T) {
	const requests = 1000
	d := deployment(t, namespace(t, nil), "web", 1, "idle")
	tr := gatedTrace(t, d, sondev1.TraceGate{})
	awaitCapturing(t, tr)
	eventually(t, time.Minute, "nothing is written any more", quietFor(t, 5*time.Second))
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(tr), tr); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	one := []*corev1.Pod{onePod(t, d, false), onePod(t, d, true)}
	for i := range requests {
		p := one[i%2].DeepCopy()
		if err := admin.Create(t.Context(), p, client.DryRunAll); err != nil || !isGated(p) {
			t.Fatalf("dry run %d: %v, gated %t", i, err, isGated(p))
		}
	}
	quotaOfNoPods(t, d.Namespace)
	for i := range requests {
		if err := admin.Create(t.Context(), one[i%2].DeepCopy()); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			t.Fatalf("create %d: %v", i, err)
		}
	}
	eventually(t, 30*time.Second, "all requests in the audit log", func(context.Context) error {
		changed := 0
		for _, e := range auditEvents(t, from) {
			if e.Verb == "create" && e.ObjectRef.Resource == "pods" && e.ObjectRef.Namespace == d.Namespace && e.ResponseStatus.Code == 403 && gateChanged(&e) {
				changed++
			}
		}
		if changed != requests {
			return fmt.Errorf("of %d refused Pods the gate's webhook has changed %d", requests, changed)
		}
		return nil
	})
	reviews := func(e auditEvent) bool { return strings.HasSuffix(e.ObjectRef.Resource, "reviews") }
	if wrote := slices.DeleteFunc(managerWrites(t, from), reviews); len(wrote) > 0 {
		t.Errorf("the operator wrote: %v", wrote.byVerb())
	}
	if pods := readyPods(t, d, 1); len(pods) != 1 || len(jobs(t, tr)) != 1 {
		t.Errorf("%d Pods, %d Jobs", len(pods), len(jobs(t, tr)))
	}
	now := &sondev1.Trace{}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(tr), now); err != nil || now.ResourceVersion != tr.ResourceVersion {
		t.Errorf("the Trace has changed: %v, %+v", err, now.Status)
	}
}

// gateChanged says whether the gate's webhook has changed the Pod of a request, as the API server notes it.
func gateChanged(e *auditEvent) bool {
	for _, note := range e.Annotations {
		if strings.Contains(note, `"configuration":"sonde-gate"`) && strings.Contains(note, `"mutated":true`) {
			return true
		}
	}
	return false
}

// mainContainer is the status of container c, nil if it has none.
func mainContainer(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == "c" {
			return p.Status.ContainerStatuses[i].DeepCopy()
		}
	}
	return nil
}
