//go:build e2e

package security

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/privilege"
)

// annotationSCC is the annotation in which OpenShift's admission names the SCC of a Pod.
const annotationSCC = "openshift.io/scc"

// awaitSCC waits until the SCC is as built for the default setting and owned by the install.
func awaitSCC(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	cluster.AwaitSetting(t.Context(), t, privilege.Privileged)
	live, err := cluster.LiveSCC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return live
}

// hostJob is a Job that would be root on its node.
func hostJob(ns, name, account string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			ServiceAccountName: account, AutomountServiceAccountToken: new(false), RestartPolicy: corev1.RestartPolicyNever, HostPID: true,
			Containers: []corev1.Container{{
				Name: "c", Image: "sonde.local/busybox:1", Command: []string{"true"},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), ReadOnlyRootFilesystem: new(true)},
			}},
		}}},
	}
}

// refusalOf waits for the event in which the Job controller reports that it may not create the Pod.
func refusalOf(t *testing.T, j *batchv1.Job) string {
	t.Helper()
	message := ""
	cluster.Eventually(t, 30*time.Second, "a refusal", func(ctx context.Context) error {
		var list corev1.EventList
		err := cluster.Admin.List(ctx, &list, client.InNamespace(j.Namespace), client.MatchingFields{"involvedObject.uid": string(j.UID), "reason": "FailedCreate"})
		if err != nil || len(list.Items) == 0 {
			return fmt.Errorf("%d events, %w", len(list.Items), err)
		}
		message = list.Items[0].Message
		return nil
	})
	return message
}

// podOf waits for the Pod of a Job.
func podOf(t *testing.T, j *batchv1.Job) *corev1.Pod {
	t.Helper()
	var list corev1.PodList
	cluster.Eventually(t, time.Minute, "a Pod of Job "+j.Name, func(ctx context.Context) error {
		if err := cluster.Admin.List(ctx, &list, client.InNamespace(j.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("got %d Pods, want 1", len(list.Items))
		}
		return nil
	})
	return &list.Items[0]
}

// golden compares a text with a file; SONDE_UPDATE_GOLDEN=1 rewrites the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if os.Getenv("SONDE_UPDATE_GOLDEN") == "1" {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
		t.Errorf("%s (-want +got), rewrite with SONDE_UPDATE_GOLDEN=1:\n%s", path, diff)
	}
}

// OpenShift's admission refuses a Job that would be root on its node, unless it uses the agents' ServiceAccount. The
// golden files show what a user of a real cluster reads.
func TestSccRefusesPrivilegedJobs(t *testing.T) {
	awaitSCC(t)
	user := cluster.Namespace(t, nil)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "without-rights"}}
	cluster.Create(t, account)
	refused := map[string]*batchv1.Job{
		"operator-namespace-without-rights": hostJob(cluster.OperatorNamespace, "refused", account.Name),
		"operator-namespace-manager":        hostJob(cluster.OperatorNamespace, "refused-manager", "sonde-manager"),
		"user-namespace-default":            hostJob(user, "refused", "default"),
	}
	borrowed := hostJob(user, "borrowed", "default")
	borrowed.Spec.Template.Annotations = map[string]string{"openshift.io/required-scc": agentjob.RequiredSCC}
	refused["user-namespace-required-scc"] = borrowed
	for name, j := range refused {
		t.Run(name, func(t *testing.T) {
			cluster.Create(t, j)
			message := strings.ReplaceAll(refusalOf(t, j), user, "NAMESPACE")
			golden(t, "scc-refusal-"+name, message)
		})
	}
	t.Run("control: the agents' account", func(t *testing.T) {
		j := hostJob(cluster.OperatorNamespace, "admitted", agentjob.ServiceAccount)
		cluster.Create(t, j)
		p := podOf(t, j)
		if got := p.Annotations[annotationSCC]; got != agentjob.RequiredSCC {
			t.Errorf("SCC %q, want %q", got, agentjob.RequiredSCC)
		}
		cluster.Eventually(t, time.Minute, "the Pod runs", func(ctx context.Context) error {
			if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || p.Status.Phase != corev1.PodSucceeded {
				return fmt.Errorf("phase %s, %w", p.Status.Phase, err)
			}
			return nil
		})
	})
}

// Pods of accounts that may use all SCCs, such as other operators', get the same SCC as without Sonde.
func TestSccLeavesOtherPodsAlone(t *testing.T) {
	awaitSCC(t)
	ns := cluster.Namespace(t, nil)
	bind := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": ns + "-admin"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "default", "namespace": ns}},
	}}
	cluster.Create(t, bind)
	j := hostJob(ns, "others", "default")
	cluster.Create(t, j)
	if got := podOf(t, j).Annotations[annotationSCC]; got == "" || got == agentjob.RequiredSCC {
		t.Errorf("another operator's Pod runs under SCC %q, want the same as without Sonde", got)
	}
}

// The operator reverts changes to the SCC and restores it after deletion. Probes run afterwards.
func TestSccIsRepaired(t *testing.T) {
	before := awaitSCC(t)
	changes := map[string]func(u *unstructured.Unstructured){
		"a group":      func(u *unstructured.Unstructured) { u.Object["groups"] = []any{"system:authenticated"} },
		"a user":       func(u *unstructured.Unstructured) { u.Object["users"] = []any{"system:serviceaccount:shop:default"} },
		"host network": func(u *unstructured.Unstructured) { u.Object["allowHostNetwork"] = true },
		"host paths":   func(u *unstructured.Unstructured) { u.Object["volumes"] = []any{"*"} },
		"not for us":   func(u *unstructured.Unstructured) { u.Object["allowPrivilegedContainer"] = false },
		"no owner":     func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			live, err := cluster.LiveSCC(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			change(live)
			if err := cluster.Admin.Update(t.Context(), live); err != nil {
				t.Fatal(err)
			}
			awaitSCC(t)
		})
	}
	cluster.DeleteNow(t, before)
	cluster.Eventually(t, time.Minute, "created again", func(ctx context.Context) error {
		live, err := cluster.LiveSCC(ctx)
		if err == nil && live.GetUID() == before.GetUID() {
			return fmt.Errorf("deleted at %v", live.GetDeletionTimestamp())
		}
		return err
	})
	awaitSCC(t)
	quickCapture(t)
}

// A Job that is created before its SCC is not lost: it waits for the SCC.
func TestSccJobsWaitForIt(t *testing.T) {
	live := awaitSCC(t)
	cluster.StopManager(t)
	cluster.DeleteNow(t, live)
	cluster.Gone(t, live, 30*time.Second)
	j := hostJob(cluster.OperatorNamespace, "waits", agentjob.ServiceAccount)
	j.Spec.Template.Annotations = map[string]string{"openshift.io/required-scc": agentjob.RequiredSCC}
	cluster.Create(t, j)
	if message := refusalOf(t, j); !strings.Contains(message, agentjob.RequiredSCC) {
		t.Errorf("the refusal does not name the missing SCC: %s", message)
	}
	cluster.StartManager(t)
	awaitSCC(t)
	cluster.Eventually(t, 3*time.Minute, "its Pod ran", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(j), j); err != nil || j.Status.Succeeded != 1 {
			return fmt.Errorf("status %+v, %w", j.Status, err)
		}
		return nil
	})
}

// The SCC is removed with the install and exists again after the next one.
func TestSccGoesWithTheInstall(t *testing.T) {
	live := awaitSCC(t)
	t.Cleanup(func() { cluster.Reinstall(t) })
	if out, err := osexec.CommandContext(t.Context(), cluster.InstallCommand, "--remove").CombinedOutput(); err != nil {
		t.Fatalf("uninstall: %v\n%s", err, out)
	}
	cluster.Gone(t, live, 30*time.Second)
	cluster.Reinstall(t)
	awaitSCC(t)
}
