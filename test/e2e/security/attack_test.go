//go:build e2e

package security

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// In each TestAttack*, a user with the role edit (or admin) in their own namespace tries to become root on a node, or to
// read other users' data. Each has two halves. In "protected" the attack fails. In "control" the
// test removes the protection and the same attack works, so that a refusal for another reason does not count as
// protection. They need a cluster with OpenShift's SCC admission. docs/security.md lists them.

// marker writes a file on every node that only root can read there, and returns its path and contents.
func marker(t *testing.T) (path, secret string) {
	t.Helper()
	path, secret = "/root/marker-"+strings.ToLower(rand.Text()), rand.Text()
	for _, node := range cluster.NodeNames(t) {
		cluster.OnNode(t, node, "sh", "-c", "umask 077; echo "+secret+" >"+path)
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			_ = exec.CommandContext(ctx, cluster.Command, "node-exec", node, "--", "rm", "-f", path).Run()
		})
	}
	return path, secret
}

// thief is a Pod that becomes root on its node if admission allows it. It prints a file of the node and ends.
func thief(ns, name, account, file string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: corev1.PodSpec{
			HostPID: true, RestartPolicy: corev1.RestartPolicyNever,
			ServiceAccountName: account, AutomountServiceAccountToken: new(false),
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "c", Image: cluster.Busybox, Command: []string{"cat", "/proc/1/root" + file},
				SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
			}},
		},
	}
}

// wantStolen waits until a thief has ended, and fails unless it printed the secret.
func wantStolen(t *testing.T, p *corev1.Pod, secret string) {
	t.Helper()
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), p) })
	cluster.Eventually(t, time.Minute, "the attack's Pod done", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("phase %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return nil
	})
	if out := logs(t, p, "c"); strings.TrimSpace(out) != secret {
		t.Errorf("the control printed %q, want the node's secret; otherwise the protected half proves nothing", out)
	}
}

func logs(t *testing.T, p *corev1.Pod, container string) string {
	t.Helper()
	stream, err := clientset(t, cluster.Config).CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: container}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	b, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func clientset(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	cs, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// configOf returns a configuration for a ServiceAccount with its own token, for requests that an impersonated user
// cannot make, such as impersonation.
func configOf(t *testing.T, ns, account string) *rest.Config {
	t.Helper()
	token, err := clientset(t, cluster.Config).CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(3600))}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := rest.AnonymousClientConfig(cluster.Config)
	c.BearerToken, c.QPS, c.Burst = token.Status.Token, 200, 400
	return c
}

// allow grants a user rules in a namespace until the test ends.
func allow(t *testing.T, ns string, to rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "e2e-"}, Rules: rules}
	if err := cluster.Admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "e2e-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, Subjects: []rbacv1.Subject{to},
	}
	if err := cluster.Admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, _ = cluster.Admin.Delete(ctx, binding), cluster.Admin.Delete(ctx, role)
	})
}

func userSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}
}

// useSCC is the rule that allows the use of the probes' SCC.
var useSCC = rbacv1.PolicyRule{
	APIGroups: []string{"security.openshift.io"}, Resources: []string{"securitycontextconstraints"},
	ResourceNames: []string{agentjob.RequiredSCC}, Verbs: []string{"use"},
}

// wantForbidden fails unless err is a refusal by authorization whose message contains all of parts.
func wantForbidden(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want it forbidden", err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("refused with %v, want a refusal that contains %q", err, part)
		}
	}
}

// allowMetrics lets the default ServiceAccount of a namespace read metrics until the test ends.
func allowMetrics(t *testing.T, ns string) {
	t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	if err := cluster.Admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	cluster.Bind(t, "", "system:serviceaccount:"+ns+":default", role.Name)
	t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), role) })
}

// stampIn returns the annotations that an admission patch adds.
func stampIn(t *testing.T, patch []byte) map[string]string {
	t.Helper()
	var ops []struct {
		Path  string            `json:"path"`
		Value map[string]string `json:"value"`
	}
	if err := json.Unmarshal(patch, &ops); err != nil || len(ops) != 1 || ops[0].Path != "/metadata/annotations" {
		t.Fatalf("patch %s (%v)", patch, err)
	}
	return ops[0].Value
}

// eventuallyLogs waits until the probe's log contains one of several texts.
func eventuallyLogs(t *testing.T, agent *corev1.Pod, wantOne ...string) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, "the probe's log", func(context.Context) error {
		log := logs(t, agent, captureconfig.ContainerProbe)
		if !slices.ContainsFunc(wantOne, func(w string) bool { return strings.Contains(log, w) }) {
			return fmt.Errorf("found none of %q in %s", wantOne, log)
		}
		return nil
	})
}
