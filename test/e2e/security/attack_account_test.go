//go:build e2e

package security

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
)

const noSCC = "unable to validate against any security context constraint"

// Only one ServiceAccount of one namespace may run privileged Pods. Neither its name, nor its token, nor the name of
// its SCC helps anyone else.
func TestAttackBorrowedServiceAccount(t *testing.T) {
	file, secret := marker(t)
	ns := cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "mallory", "edit")
	mallory := cluster.As(t, "mallory")
	namesake := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: agentjob.ServiceAccount}}
	if err := mallory.Create(t.Context(), namesake); err != nil {
		t.Fatal(err)
	}
	pinned := func(p *corev1.Pod) *corev1.Pod {
		p.Annotations = map[string]string{"openshift.io/required-scc": agentjob.RequiredSCC}
		return p
	}
	t.Run("protected", func(t *testing.T) {
		for name, tc := range map[string]struct {
			pod  *corev1.Pod
			want string
		}{
			"the own account":            {thief(ns, "own", "default", file), noSCC},
			"an account of its name":     {thief(ns, "namesake", agentjob.ServiceAccount, file), noSCC},
			"the name of the SCC":        {pinned(thief(ns, "pinned", agentjob.ServiceAccount, file)), agentjob.RequiredSCC},
			"its own namespace":          {thief(cluster.OperatorNamespace, "there", agentjob.ServiceAccount, file), `cannot create resource "pods"`},
			"the manager's account":      {thief(cluster.OperatorNamespace, "manager", "sonde-manager", file), `cannot create resource "pods"`},
			"an account with its prefix": {thief(ns, "prefixed", cluster.OperatorNamespace+":"+agentjob.ServiceAccount, file), ""},
		} {
			t.Run(name, func(t *testing.T) {
				err := mallory.Create(t.Context(), tc.pod)
				if err == nil {
					t.Fatal("the Pod was admitted, want a refusal")
				}
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("refused with %v, want a refusal that contains %q", err, tc.want)
				}
			})
		}
		t.Run("by a Job", func(t *testing.T) {
			wantNoPodOf(t, mallory, pinned(thief(ns, "job", agentjob.ServiceAccount, file)))
		})
		t.Run("a Job there", func(t *testing.T) {
			wantForbidden(t, mallory.Create(t.Context(), jobOf(thief(cluster.OperatorNamespace, "job", agentjob.ServiceAccount, file))), `cannot create resource "jobs"`)
		})
		for _, account := range []string{agentjob.ServiceAccount, "sonde-manager"} {
			t.Run("the token of "+account, func(t *testing.T) {
				there := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: account}}
				wantForbidden(t, mallory.SubResource("token").Create(t.Context(), there, &authenticationv1.TokenRequest{}), "serviceaccounts/token")
			})
		}
	})
	t.Run("control: the right to use the SCC", func(t *testing.T) {
		allow(t, ns, rbacv1.Subject{Kind: "ServiceAccount", Namespace: ns, Name: agentjob.ServiceAccount}, useSCC)
		p := pinned(thief(ns, "thief", agentjob.ServiceAccount, file))
		cluster.CreateEventually(t, mallory, p) // authorization is cached for a moment
		wantStolen(t, p, secret)
	})
	t.Run("control: edit in the operator's namespace", func(t *testing.T) {
		cluster.Bind(t, cluster.OperatorNamespace, "mallory", "edit")
		p := pinned(thief(cluster.OperatorNamespace, "thief", agentjob.ServiceAccount, file))
		cluster.CreateEventually(t, mallory, p)
		wantStolen(t, p, secret)
	})
}

// The admin of a namespace may grant the rights that they have there. These include neither the probes' rights nor the
// manager's.
func TestAttackRoleBinding(t *testing.T) {
	file, secret := marker(t)
	ns := cluster.Namespace(t, nil)
	cluster.Bind(t, ns, "mallory", "admin")
	mallory := cluster.As(t, "mallory")
	account := rbacv1.Subject{Kind: "ServiceAccount", Namespace: ns, Name: "default"}
	binding := func(kind, role string) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "mine-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}, Subjects: []rbacv1.Subject{account},
		}
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "use"}, Rules: []rbacv1.PolicyRule{useSCC}}
	t.Run("protected", func(t *testing.T) {
		const escalation = "attempting to grant RBAC permissions not currently held"
		wantForbidden(t, mallory.Create(t.Context(), role.DeepCopy()), escalation)
		for _, name := range []string{"sonde-manager", "system:openshift:scc:privileged", "cluster-admin"} {
			wantForbidden(t, mallory.Create(t.Context(), binding("ClusterRole", name)), escalation)
		}
		// They may bind the roles for users, which grant only what they say.
		for _, name := range []string{"sonde-edit", "sonde-view", "sonde-capture"} {
			if err := mallory.Create(t.Context(), binding("ClusterRole", name)); err != nil {
				t.Errorf("binding %s: %v", name, err)
			}
		}
		wantForbidden(t, mallory.Create(t.Context(), thief(ns, "thief", "default", file)), noSCC)
	})
	t.Run("control: the verb escalate", func(t *testing.T) {
		allow(t, ns, userSubject("mallory"), rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"escalate", "bind"}})
		cluster.CreateEventually(t, mallory, role)
		cluster.CreateEventually(t, mallory, binding("Role", role.Name))
		p := thief(ns, "thief", "default", file)
		cluster.CreateEventually(t, mallory, p)
		wantStolen(t, p, secret)
	})
}

// The role edit may impersonate the ServiceAccounts of its namespace, but not another namespace's.
func TestAttackImpersonation(t *testing.T) {
	file, secret := marker(t)
	ns := cluster.Namespace(t, nil)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mallory"}}
	if err := cluster.Admin.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	user := "system:serviceaccount:" + ns + ":mallory"
	cluster.Bind(t, ns, user, "edit")
	own := configOf(t, ns, "mallory")
	createAs := func(ctx context.Context, user string, job *batchv1.Job) error {
		c := rest.CopyConfig(own)
		c.Impersonate = rest.ImpersonationConfig{UserName: user}
		_, err := clientset(t, c).BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
		return err
	}
	manager := "system:serviceaccount:" + cluster.OperatorNamespace + ":sonde-manager"
	job := jobOf(thief(cluster.OperatorNamespace, "thief", agentjob.ServiceAccount, file))
	t.Run("protected", func(t *testing.T) {
		for _, other := range []string{manager, "system:serviceaccount:" + cluster.OperatorNamespace + ":" + agentjob.ServiceAccount, "system:admin"} {
			wantForbidden(t, createAs(t.Context(), other, job), "cannot impersonate")
		}
	})
	t.Run("control: the verb impersonate there", func(t *testing.T) {
		allow(t, cluster.OperatorNamespace, userSubject(user), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"impersonate"}})
		cluster.Eventually(t, 15*time.Second, "Job created", func(ctx context.Context) error { return createAs(ctx, manager, job) })
		t.Cleanup(func() {
			_ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), job, client.PropagationPolicy(metav1.DeletePropagationBackground))
		})
		wantStolen(t, podOf(t, job), secret)
	})
}

// jobOf wraps a Pod in a Job.
func jobOf(p *corev1.Pod) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: p.Annotations}, Spec: p.Spec,
		}},
	}
}

// wantNoPodOf creates a Job and waits until the Job controller reports that its Pod is refused.
func wantNoPodOf(t *testing.T, c client.Client, p *corev1.Pod) {
	t.Helper()
	job := jobOf(p)
	if err := c.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, 30*time.Second, "refusal of the Job's Pod", func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.Admin.List(ctx, &events, client.InNamespace(job.Namespace), client.MatchingFields{"involvedObject.uid": string(job.UID), "reason": "FailedCreate"}); err != nil {
			return err
		}
		if len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "forbidden") {
			return fmt.Errorf("events %+v", events.Items)
		}
		return nil
	})
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil || len(pods.Items) != 0 {
		t.Errorf("the Job has %d Pods, want none (%v)", len(pods.Items), err)
	}
}
