//go:build e2e

package security

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/captureconfig"
)

// A user who can exec into a probe owns its node. The owner of a capture, admin in its namespace, cannot: the probe runs
// in a namespace where users have no rights.
func TestAttackIntoTheProbe(t *testing.T) {
	file, secret := marker(t)
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.Bind(t, ns, "mallory", "admin")
	pc := cluster.Capture(t, cluster.As(t, "mallory"), ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: cluster.AgentPod(t, pc)}}
	mallory := cluster.ConfigAs("mallory")
	// The probe's image has no shell, but the probe sees the node's processes, and through them the node's files.
	steal := []string{"/proc/1/root/bin/busybox", "cat", "/proc/1/root" + file}
	debug := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: cluster.Busybox, Command: []string{"cat", "/proc/1/root" + file},
		SecurityContext: &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsNonRoot: new(false)},
	}}

	t.Run("protected", func(t *testing.T) {
		for _, container := range []string{captureconfig.ContainerProbe, captureconfig.ContainerKeeper} {
			_, exec := cluster.ExecAs(t.Context(), mallory, probe, "exec", container, steal...)
			_, attach := cluster.ExecAs(t.Context(), mallory, probe, "attach", container)
			// The refusal of a connection that is not upgraded is a readable message.
			for what, err := range map[string]error{"exec": exec, "attach": attach, "portforward": forwardAs(mallory, probe)} {
				if err == nil || !strings.Contains(err.Error(), `cannot create resource "pods/`+what+`"`) {
					t.Errorf("%s: got %v, want it forbidden", what, err)
				}
			}
		}
		wantForbidden(t, addEphemeral(t.Context(), t, mallory, probe, debug), "pods/ephemeralcontainers")
		_, err := clientset(t, mallory).CoreV1().Pods(cluster.OperatorNamespace).GetLogs(probe.Name, &corev1.PodLogOptions{Container: "probe"}).Stream(t.Context())
		wantForbidden(t, err, "pods/log")
		wantForbidden(t, cluster.As(t, "mallory").Get(t.Context(), client.ObjectKeyFromObject(probe), &corev1.Pod{}), `cannot get resource "pods"`)
		for _, path := range []string{
			"/api/v1/nodes/" + cluster.NodeNames(t)[0] + "/proxy/pods", "/api/v1/namespaces/" + cluster.OperatorNamespace + "/pods/" + probe.Name + "/proxy/",
		} {
			if status := cluster.GetRaw(t.Context(), t, "mallory", path, ""); status != http.StatusForbidden {
				t.Errorf("%s: status %d, want 403", path, status)
			}
		}
	})
	// OpenShift's admission of exec checks whether the Pod's own ServiceAccount may run such a Pod, which it may. So
	// this admission does not protect the probe.
	t.Run("control: edit in the operator's namespace", func(t *testing.T) {
		cluster.Bind(t, cluster.OperatorNamespace, "mallory", "edit")
		allow(t, cluster.OperatorNamespace, userSubject("mallory"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/ephemeralcontainers"}, Verbs: []string{"update", "patch"}})
		cluster.Eventually(t, 15*time.Second, "exec", func(ctx context.Context) error {
			out, err := cluster.ExecAs(ctx, mallory, probe, "exec", captureconfig.ContainerProbe, steal...)
			if err != nil || strings.TrimSpace(out) != secret {
				return fmt.Errorf("%q: %w", out, err)
			}
			return nil
		})
		cluster.Eventually(t, 15*time.Second, "ephemeral container", func(ctx context.Context) error { return addEphemeral(ctx, t, mallory, probe, debug) })
		cluster.Eventually(t, 30*time.Second, "its output", func(ctx context.Context) error {
			b, err := clientset(t, cluster.Config).CoreV1().Pods(cluster.OperatorNamespace).GetLogs(probe.Name, &corev1.PodLogOptions{Container: "debug"}).DoRaw(ctx)
			if err != nil || strings.TrimSpace(string(b)) != secret {
				return fmt.Errorf("%q: %w", b, err)
			}
			return nil
		})
		if err := forwardAs(mallory, probe); err != nil {
			t.Errorf("port-forward: %v", err)
		}
	})
}

// forwardAs opens a port of the keeper through the API server and closes it again.
func forwardAs(c *rest.Config, p *corev1.Pod) error {
	cs, err := rest.RESTClientFor(cluster.CoreConfig(c))
	if err != nil {
		return err
	}
	transport, upgrader, err := spdy.RoundTripperFor(c)
	if err != nil {
		return err
	}
	url := cs.Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	f, err := portforward.New(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), []string{"0:8443"}, stop, ready, nil, nil)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- f.ForwardPorts() }()
	select {
	case <-ready:
		close(stop)
		return <-failed
	case err := <-failed:
		return err
	}
}

func addEphemeral(ctx context.Context, t *testing.T, c *rest.Config, p *corev1.Pod, e corev1.EphemeralContainer) error {
	t.Helper()
	live := &corev1.Pod{}
	if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), live); err != nil {
		return err
	}
	live.Spec.EphemeralContainers = append(live.Spec.EphemeralContainers, e)
	_, err := clientset(t, c).CoreV1().Pods(p.Namespace).UpdateEphemeralContainers(ctx, p.Name, live, metav1.UpdateOptions{})
	return err
}
