//go:build e2e

package security

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// Users x targets, with the roles that kustomize installs.
func TestRightsMatrix(t *testing.T) { cluster.RightsMatrix(t) }

// Only users who may capture now can read results; rights on Sonde's kinds are not enough.
func TestResultsNeedTheVerb(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "admin", "admin")
	cluster.Bind(t, ns, "edit", "edit")
	pc := cluster.Capture(t, cluster.As(t, "admin"), ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	cluster.Stop(t, pc)
	file := pc.Status.Pods[0].Files[0].Name
	path := fmt.Sprintf("/api/v1/namespaces/%s/services/https:sonde-results:https/proxy/v1/namespaces/%s/packetcaptures/%s/files/%s/%s",
		cluster.OperatorNamespace, ns, pc.Name, pc.Status.Pods[0].UID, file)

	access := func(user, token string) error {
		sum := sha256.Sum256([]byte(token))
		return cluster.As(t, user).Create(t.Context(), &sondev1.ResultAccess{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: ns},
			Spec:       sondev1.ResultAccessSpec{CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: pc.Name}, TokenHash: hex.EncodeToString(sum[:])},
		})
	}
	if err := access("edit", "the token of edit, which is long enough"); err == nil || !strings.Contains(err.Error(), "capture") {
		t.Errorf("user edit created a ResultAccess, want a refusal: %v", err)
	}
	if err := access("admin", "the token of admin, which is long enough"); err != nil {
		t.Errorf("user admin could not create a ResultAccess: %v", err)
	}
	cases := map[string]struct {
		user, token string
		want        int
	}{
		"admin with the token":    {user: "admin", token: "the token of admin, which is long enough", want: 200},
		"any user with the token": {user: "nobody", token: "the token of admin, which is long enough", want: 200},
		"no token":                {user: "admin", want: 401},
		"an unregistered token":   {user: "admin", token: "the token of edit, which is long enough", want: 401},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var status int
			cluster.Eventually(t, 5*time.Second, "answer", func(ctx context.Context) error {
				status = cluster.GetRaw(ctx, t, tc.user, path, tc.token)
				if status != tc.want {
					return fmt.Errorf("status %d, want %d", status, tc.want)
				}
				return nil
			})
		})
	}
	// No other Service, port or Pod of the operator's namespace leads to the results.
	for _, other := range []string{
		"/api/v1/namespaces/sonde-system/services/https:sonde-webhook:https/proxy/", "/api/v1/namespaces/sonde-system/services/sonde-results/proxy/",
		"/api/v1/namespaces/sonde-system/pods/https:" + cluster.AgentPod(t, pc) + ":8443/proxy/v1/progress", "/api/v1/namespaces/sonde-system/secrets",
	} {
		if status := cluster.GetRaw(t.Context(), t, "admin", other, "the token of admin, which is long enough"); status != 403 {
			t.Errorf("%s: status %d, want 403", other, status)
		}
	}
}

// Withdrawing a right during a capture ends the capture and removes its results.
func TestRevokedRightEndsTheCapture(t *testing.T) {
	cluster.ManagerFlag(t, "--access-review-interval=2s")
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	binding := cluster.Bind(t, ns, "admin", "admin")
	pc := cluster.Capture(t, cluster.As(t, "admin"), ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	cluster.DeleteNow(t, binding)
	cluster.AwaitFinal(t, pc, 30*time.Second)
	cluster.WantNotAdmitted(t, pc, sondev1.ReasonAccessRevoked)
	noProbes(t)
}

// Opting out a namespace ends its captures at once, without waiting for the next review, and keeps the results.
func TestRightsOptOutEndsTheCapture(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	closed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, sondev1.LabelOptOut)
	if err := cluster.Admin.Patch(t.Context(), closed, client.RawPatch(types.MergePatchType, []byte(label))); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitFinal(t, pc, 30*time.Second)
	cluster.WantNotAdmitted(t, pc, sondev1.ReasonOptedOut)
	noProbes(t)
	if len(pc.Status.Pods) != 1 || len(pc.Status.Pods[0].Files) != 1 {
		t.Errorf("want the results of the opted-out namespace kept, got %+v", pc.Status.Pods)
	}
	again := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "no-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink"}}
	if err := cluster.Admin.Create(t.Context(), again); err == nil || !strings.Contains(err.Error(), sondev1.LabelOptOut) {
		t.Errorf("a new capture: %v, want a refusal that names the label", err)
	}
}

// A capture without a stamp, or with a stamp for something else, never gets a Job.
func TestWithoutAValidStampThereIsNoJob(t *testing.T) {
	ns, other := cluster.Namespace(t, nil), cluster.Namespace(t, nil)
	for _, n := range []string{ns, other} {
		cluster.Deployment(t, n, "sink", 1, "sink")
	}
	spec := sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", RetainFor: "10s"}
	genuine := cluster.Capture(t, cluster.Admin, ns, spec)
	cluster.Stop(t, genuine)

	cluster.StopManager(t)
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sonde"}}
	cluster.DeleteNow(t, hook)
	cluster.Gone(t, hook, 10*time.Second)
	crafted := map[string]*sondev1.PacketCapture{
		"no stamp":          {ObjectMeta: metav1.ObjectMeta{Namespace: ns}, Spec: spec},
		"made up":           {ObjectMeta: metav1.ObjectMeta{Namespace: ns, Annotations: map[string]string{sondev1.AnnotationRequester: genuine.Annotations[sondev1.AnnotationRequester], sondev1.AnnotationStamp: strings.Repeat("ab", 32)}}, Spec: spec},
		"another namespace": {ObjectMeta: metav1.ObjectMeta{Namespace: other, Annotations: genuine.Annotations}, Spec: spec},
		"another spec":      {ObjectMeta: metav1.ObjectMeta{Namespace: ns, Annotations: genuine.Annotations}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "20m"}},
	}
	for name, pc := range crafted {
		pc.GenerateName = "forged-"
		if err := cluster.Admin.Create(t.Context(), pc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	cluster.StartManager(t)
	for name, pc := range crafted {
		cluster.Eventually(t, 30*time.Second, name+": not admitted", func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
				return err
			}
			if !apimeta.IsStatusConditionFalse(pc.Status.Conditions, sondev1.ConditionAdmitted) {
				return fmt.Errorf("conditions %+v", pc.Status.Conditions)
			}
			return nil
		})
		cluster.WantNotAdmitted(t, pc, sondev1.ReasonNotAdmitted)
		wantNoJob(t, pc)
	}
}

// A namespace that was deleted and created again under the same name counts as another one.
func TestNamespaceMadeAnewIsNotCaptured(t *testing.T) {
	hub, ns := cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"}), cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, hub, sondev1.PacketCaptureSpec{TargetNamespace: ns, TargetDeployment: "sink", Duration: "10m"})
	// While the manager is down it cannot see that the target is deleted, only later that it has another UID.
	cluster.StopManager(t)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	cluster.DeleteNow(t, n)
	cluster.Gone(t, n, 30*time.Second)
	if err := cluster.Admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.StartManager(t)
	cluster.AwaitFinal(t, pc, 30*time.Second)
	cluster.WantNotAdmitted(t, pc, sondev1.ReasonNamespaceReplaced)
	noProbes(t)
	if got := len(cluster.JobsOf(t, pc)); got > 1 {
		t.Errorf("got %d Jobs, want none for the new namespace's Pod", got)
	}
}

func wantNoJob(t *testing.T, pc *sondev1.PacketCapture) {
	t.Helper()
	if n := len(cluster.JobsOf(t, pc)); n != 0 {
		t.Errorf("got %d Jobs for %s, want none", n, pc.Name)
	}
}

// noProbes waits until no probe runs. Keepers of finished captures may still run.
func noProbes(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, 15*time.Second, "no probe on any node", func(context.Context) error {
		for _, p := range cluster.AgentProcesses(t) {
			if strings.Contains(p, "/agent probe") {
				return fmt.Errorf("probe still runs: %s", p)
			}
		}
		return nil
	})
}
