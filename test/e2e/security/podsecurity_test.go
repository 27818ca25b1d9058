//go:build e2e

package security

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Where pod security refuses the probes' Pods, the status quotes the API server and says what to do. Once that is done,
// the capture starts by itself.
func TestSccPodSecurityRefusal(t *testing.T) {
	const label = "pod-security.kubernetes.io/enforce"
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	before := enforce(t.Context(), t, label, "restricted")
	t.Cleanup(func() { enforce(context.WithoutCancel(t.Context()), t, label, before) })
	pc := &sondev1.PacketCapture{
		ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: ns},
		Spec:       sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"},
	}
	cluster.Create(t, pc)
	cluster.Eventually(t, 90*time.Second, "condition ProbesAllowed is False", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if !apimeta.IsStatusConditionFalse(pc.Status.Conditions, sondev1.ConditionProbesAllowed) {
			return fmt.Errorf("conditions %+v, pods %+v", pc.Status.Conditions, pc.Status.Pods)
		}
		return nil
	})
	c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionProbesAllowed)
	for _, want := range []string{
		"kubectl label namespace " + cluster.OperatorNamespace + " " + label + "=privileged",
		`violates PodSecurity "restricted:latest"`, "hostPID=true", `container "probe" must not set securityContext.privileged=true`,
	} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("condition %s has message %q, want %q in it", c.Reason, c.Message, want)
		}
	}
	if e := cluster.Entry(t, pc, pc.Status.Pods[0].Name); c.Reason != sondev1.ReasonJobRefused || e.Reason != sondev1.ReasonJobRefused || e.Phase != sondev1.PhasePending {
		t.Errorf("reason %s, entry %+v: want JobRefused and a waiting entry", c.Reason, e)
	}
	_, quoted, _ := strings.Cut(c.Message, "violates PodSecurity")
	var events corev1.EventList
	if err := cluster.Admin.List(t.Context(), &events, client.InNamespace(cluster.OperatorNamespace), client.MatchingFields{"reason": "FailedCreate"}); err != nil {
		t.Fatal(err)
	}
	verbatim := false
	for i := range events.Items {
		verbatim = verbatim || strings.HasSuffix(events.Items[i].Message, quoted)
	}
	if !verbatim {
		t.Errorf("the refusal is not quoted verbatim: %q", quoted)
	}

	enforce(t.Context(), t, label, before)
	cluster.AwaitCapturing(t, pc)
	if !apimeta.IsStatusConditionTrue(pc.Status.Conditions, sondev1.ConditionProbesAllowed) {
		t.Errorf("conditions %+v, want ProbesAllowed", pc.Status.Conditions)
	}
}

// enforce sets a label of the operator's namespace and returns its old value.
func enforce(ctx context.Context, t *testing.T, label, value string) string {
	t.Helper()
	var ns corev1.Namespace
	if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: cluster.OperatorNamespace}, &ns); err != nil {
		t.Fatal(err)
	}
	before := ns.Labels[label]
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, label, value))
	if err := cluster.Admin.Patch(ctx, &ns, patch); err != nil {
		t.Fatal(err)
	}
	return before
}
