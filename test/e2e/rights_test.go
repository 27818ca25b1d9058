//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// Users x targets, as kustomize's install aggregates them.
func TestRightsMatrix(t *testing.T) { cluster.RightsMatrix(t) }

// Results are for those who may capture, now: the kinds' own rights are not enough.
func TestResultsNeedTheVerb(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
	bind(t, ns, "admin", "admin")
	bind(t, ns, "edit", "edit")
	pc := capture(t, as(t, "admin"), ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "5m"})
	stop(t, pc)
	file := pc.Status.Pods[0].Files[0].Name
	path := fmt.Sprintf("/api/v1/namespaces/%s/services/https:sonde-results:https/proxy/v1/namespaces/%s/packetcaptures/%s/files/%s/%s",
		operatorNamespace, ns, pc.Name, pc.Status.Pods[0].UID, file)

	access := func(user, token string) error {
		sum := sha256.Sum256([]byte(token))
		return as(t, user).Create(t.Context(), &sondev1.ResultAccess{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "a-", Namespace: ns},
			Spec:       sondev1.ResultAccessSpec{CaptureRef: sondev1.CaptureReference{Kind: sondev1.CapturePacketCapture, Name: pc.Name}, TokenHash: hex.EncodeToString(sum[:])},
		})
	}
	if err := access("edit", "the token of edit, which is long enough"); err == nil || !strings.Contains(err.Error(), "capture") {
		t.Errorf("edit got a ResultAccess: %v", err)
	}
	if err := access("admin", "the token of admin, which is long enough"); err != nil {
		t.Errorf("admin got none: %v", err)
	}
	cases := map[string]struct {
		user, token string
		want        int
	}{
		"admin with the token":           {user: "admin", token: "the token of admin, which is long enough", want: 200},
		"the token is what counts":       {user: "nobody", token: "the token of admin, which is long enough", want: 200},
		"no token":                       {user: "admin", want: 401},
		"a token that nobody registered": {user: "admin", token: "the token of edit, which is long enough", want: 401},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var status int
			eventually(t, 5*time.Second, "answer", func(ctx context.Context) error {
				status = getRaw(ctx, t, tc.user, path, tc.token)
				if status != tc.want {
					return fmt.Errorf("status %d, want %d", status, tc.want)
				}
				return nil
			})
		})
	}
	// Through any other service, port or Pod of the operator's namespace there is no way at all.
	for _, other := range []string{
		"/api/v1/namespaces/sonde-system/services/https:sonde-webhook:https/proxy/", "/api/v1/namespaces/sonde-system/services/sonde-results/proxy/",
		"/api/v1/namespaces/sonde-system/pods/https:" + agentPod(t, pc) + ":8443/proxy/v1/progress", "/api/v1/namespaces/sonde-system/secrets",
	} {
		if status := getRaw(t.Context(), t, "admin", other, "the token of admin, which is long enough"); status != 403 {
			t.Errorf("%s: status %d, want 403", other, status)
		}
	}
}

func agentPod(t *testing.T, capture sondev1.Capture) string {
	t.Helper()
	var pods corev1.PodList
	if err := admin.List(t.Context(), &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())}); err != nil || len(pods.Items) == 0 {
		t.Fatalf("no agent's Pod: %v", err)
	}
	return pods.Items[0].Name
}

// A right that is taken away in mid-capture ends the capture, and its results with it.
func TestRevokedRightEndsTheCapture(t *testing.T) {
	managerFlag(t, "--access-review-interval=2s")
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
	binding := bind(t, ns, "admin", "admin")
	pc := capture(t, as(t, "admin"), ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	deleteNow(t, binding)
	awaitFinal(t, pc, 30*time.Second)
	wantNotAdmitted(t, pc, sondev1.ReasonAccessRevoked)
	noProbes(t)
}

// A namespace that is closed ends what runs there, by its own event and not at the next review, and keeps the results.
func TestRightsOptOutEndsTheCapture(t *testing.T) {
	ns := namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
	pc := capture(t, admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	closed := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	label := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, sondev1.LabelOptOut)
	if err := admin.Patch(t.Context(), closed, client.RawPatch(types.MergePatchType, []byte(label))); err != nil {
		t.Fatal(err)
	}
	awaitFinal(t, pc, 30*time.Second)
	wantNotAdmitted(t, pc, sondev1.ReasonOptedOut)
	noProbes(t)
	if len(pc.Status.Pods) != 1 || len(pc.Status.Pods[0].Files) != 1 {
		t.Errorf("results of a namespace that was closed: %+v", pc.Status.Pods)
	}
	again := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: "no-", Namespace: ns}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink"}}
	if err := admin.Create(t.Context(), again); err == nil || !strings.Contains(err.Error(), sondev1.LabelOptOut) {
		t.Errorf("a new capture: %v, want a refusal that names the label", err)
	}
}

// What no webhook has stamped, or a stamp that was made for something else, never gets a Job.
func TestWithoutAValidStampThereIsNoJob(t *testing.T) {
	ns, other := namespace(t, nil), namespace(t, nil)
	for _, n := range []string{ns, other} {
		deployment(t, n, "sink", 1, "sink")
	}
	spec := sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", RetainFor: "10s"}
	genuine := capture(t, admin, ns, spec)
	stop(t, genuine)

	stopManager(t)
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "sonde"}}
	deleteNow(t, hook)
	gone(t, hook, 10*time.Second)
	crafted := map[string]*sondev1.PacketCapture{
		"no stamp":          {ObjectMeta: metav1.ObjectMeta{Namespace: ns}, Spec: spec},
		"made up":           {ObjectMeta: metav1.ObjectMeta{Namespace: ns, Annotations: map[string]string{sondev1.AnnotationRequester: genuine.Annotations[sondev1.AnnotationRequester], sondev1.AnnotationStamp: strings.Repeat("ab", 32)}}, Spec: spec},
		"another namespace": {ObjectMeta: metav1.ObjectMeta{Namespace: other, Annotations: genuine.Annotations}, Spec: spec},
		"another spec":      {ObjectMeta: metav1.ObjectMeta{Namespace: ns, Annotations: genuine.Annotations}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "20m"}},
	}
	for name, pc := range crafted {
		pc.GenerateName = "forged-"
		if err := admin.Create(t.Context(), pc); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	startManager(t)
	for name, pc := range crafted {
		eventually(t, 30*time.Second, name+": not admitted", func(ctx context.Context) error {
			if err := admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
				return err
			}
			if !apimeta.IsStatusConditionFalse(pc.Status.Conditions, sondev1.ConditionAdmitted) {
				return fmt.Errorf("conditions %+v", pc.Status.Conditions)
			}
			return nil
		})
		wantNotAdmitted(t, pc, sondev1.ReasonNotAdmitted)
		wantNoJob(t, pc)
	}
}

// A namespace that was deleted and made anew under the same name is another's.
func TestNamespaceMadeAnewIsNotCaptured(t *testing.T) {
	hub, ns := namespace(t, map[string]string{sondev1.LabelHub: "true"}), namespace(t, nil)
	deployment(t, ns, "sink", 1, "sink")
	pc := capture(t, admin, hub, sondev1.PacketCaptureSpec{TargetNamespace: ns, TargetDeployment: "sink", Duration: "10m"})
	// With the manager away it cannot see that the target goes, only that it is another's afterwards.
	stopManager(t)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	deleteNow(t, n)
	gone(t, n, 30*time.Second)
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	deployment(t, ns, "sink", 1, "sink")
	startManager(t)
	awaitFinal(t, pc, 30*time.Second)
	wantNotAdmitted(t, pc, sondev1.ReasonNamespaceReplaced)
	noProbes(t)
	if got := len(jobs(t, pc)); got > 1 {
		t.Errorf("%d Jobs: the new namespace's Pod got one", got)
	}
}

func wantNotAdmitted(t *testing.T, pc *sondev1.PacketCapture, reason string) {
	t.Helper()
	c := apimeta.FindStatusCondition(pc.Status.Conditions, sondev1.ConditionAdmitted)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || c.Message == "" {
		t.Errorf("condition Admitted = %+v, want False with reason %s and a message", c, reason)
	}
}

func jobs(t *testing.T, capture sondev1.Capture) []batchv1.Job {
	t.Helper()
	var list batchv1.JobList
	if err := admin.List(t.Context(), &list, client.InNamespace(operatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func wantNoJob(t *testing.T, pc *sondev1.PacketCapture) {
	t.Helper()
	if n := len(jobs(t, pc)); n != 0 {
		t.Errorf("%d Jobs for %s, want none", n, pc.Name)
	}
}

// noProbes waits until no probe runs (keepers may, for what was captured before).
func noProbes(t *testing.T) {
	t.Helper()
	eventually(t, 15*time.Second, "no probe on any node", func(context.Context) error {
		for _, p := range agentProcesses(t) {
			if strings.Contains(p, "/agent probe") {
				return fmt.Errorf("%s", p)
			}
		}
		return nil
	})
}
