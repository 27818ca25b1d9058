package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/agentjob"
	"github.com/sonde-operator/sonde/internal/wire/tunnel"
)

// Laptop answers every request with its name, and returns the address that it listens on.
func Laptop(t *testing.T, name string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return l.Addr().String()
}

// Intercepting is a running kubectl sonde intercept.
type Intercepting struct {
	Process *os.Process
	Out     *Screen
	ended   chan error
	ns      string
}

// Intercept runs kubectl sonde intercept for a Deployment's port 8080 until it is active on all of this many Pods.
func Intercept(t *testing.T, ns, deployment string, pods int, args ...string) *Intercepting {
	t.Helper()
	cmd, out, errOut := StartPlugin(t, append([]string{"intercept", "deploy/" + deployment, "-n", ns, "--port", "8080"}, args...)...)
	i := &Intercepting{Process: cmd.Process, Out: out, ended: make(chan error, 1), ns: ns}
	go func() { i.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = i.Process.Kill()
		if t.Failed() {
			t.Logf("kubectl sonde intercept:\n%s%s", out, errOut)
		}
	})
	i.Await(t, pods, time.Minute)
	return i
}

// Await waits until the namespace's requests are active on this many Pods each.
func (i *Intercepting) Await(t *testing.T, pods int, within time.Duration) {
	t.Helper()
	Eventually(t, within, fmt.Sprintf("%d Pods intercepted", pods), func(ctx context.Context) error {
		var list sondev1.InterceptRequestList
		if err := Admin.List(ctx, &list, client.InNamespace(i.ns)); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("no InterceptRequest")
		}
		for n := range list.Items {
			q := &list.Items[n]
			active := 0
			for _, p := range q.Status.Pods {
				if p.Active {
					active++
				}
			}
			if !q.Status.Active || active != pods || len(q.Status.Pods) != pods {
				return fmt.Errorf("%s is %s on %d of %d Pods: %+v", q.Name, q.Status.Phase, active, len(q.Status.Pods), q.Status.Conditions)
			}
		}
		return nil
	})
}

// Interrupt presses Ctrl-C, and waits until the command has ended.
func (i *Intercepting) Interrupt(t *testing.T) {
	t.Helper()
	if err := i.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-i.ended:
		if err != nil {
			t.Errorf("kubectl sonde intercept: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("kubectl sonde intercept does not end")
	}
}

// CarrierPod returns the Pod that intercepts a Pod. The test fails unless there is exactly one.
func CarrierPod(t *testing.T, of *corev1.Pod) *corev1.Pod {
	t.Helper()
	return theOnly(t, client.MatchingLabels{sondev1.LabelKind: agentjob.KindCarrier, sondev1.LabelTargetPodUID: string(of.UID)})
}

// StowawayPod returns Stowaway's Pod. The test fails unless there is exactly one.
func StowawayPod(t *testing.T) *corev1.Pod {
	t.Helper()
	return theOnly(t, client.MatchingLabels{"app.kubernetes.io/component": agentjob.ComponentStowaway})
}

// theOnly returns the one Pod of the operator's namespace that has these labels and is not being deleted.
func theOnly(t *testing.T, labels client.MatchingLabels) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	err := Admin.List(t.Context(), &pods, client.InNamespace(OperatorNamespace), labels)
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("%d Pods with labels %v, want 1: %v", len(pods.Items), labels, err)
	}
	return &pods.Items[0]
}

// Ask sends one request from a Pod to another one's port 8080, and returns who answered. A header is NAME=VALUE.
func Ask(ctx context.Context, from, to *corev1.Pod, header string) (string, error) {
	url := "http://" + net.JoinHostPort(to.Status.PodIP, strconv.Itoa(8080)) + "/"
	out, err := Exec(ctx, from, "/workload", "get", "-url", url, "-header", header)
	return strings.TrimSpace(out), err
}

// NoIntercepts waits until neither a carrier nor Stowaway is left.
func NoIntercepts(t *testing.T, within time.Duration) {
	t.Helper()
	Eventually(t, within, "nothing of intercepts is left", func(ctx context.Context) error {
		ours := []client.ListOption{client.InNamespace(OperatorNamespace), client.MatchingLabels{sondev1.LabelKind: agentjob.KindCarrier}}
		var jobs batchv1.JobList
		var pods corev1.PodList
		var secrets corev1.SecretList
		for _, list := range []client.ObjectList{&jobs, &pods, &secrets} {
			if err := Admin.List(ctx, list, ours...); err != nil {
				return err
			}
		}
		if n := len(jobs.Items) + len(pods.Items) + len(secrets.Items); n > 0 {
			return fmt.Errorf("%d Jobs, %d Pods and %d Secrets of carriers", len(jobs.Items), len(pods.Items), len(secrets.Items))
		}
		err := Admin.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: tunnel.Name}, &corev1.Service{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get the Service of Stowaway: %w", err)
		}
		return nil
	})
}
