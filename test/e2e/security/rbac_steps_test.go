//go:build e2e

package security

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-operator/sonde/test/cluster"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/certs"
)

// step is one activity of the manager.
type step struct {
	name string
	run  func(*testing.T)
}

// steps together use every right of the manager.
func steps() []step {
	return []step{
		{"starting", stepStart},
		{"capturing, stopping, downloading, deleting", stepCapture},
		{"tracing", stepTrace},
		{"looking for targets of each kind", stepTargets},
		{"losing an agent", stepLostAgent},
		{"having a Job refused", stepRefused},
		{"serving metrics", stepMetrics},
		{"clearing away an expired access", stepExpiry},
		{"gating, and replacing what cannot be gated", stepGate},
		{"giving a Pod a volume, and processing it", stepFluentPVC},
		{"intercepting a port", stepIntercept},
		{"installing a backend", stepCollector},
	}
}

// stepStart starts the manager on an empty cluster, once like on API servers that cannot stream lists.
func stepStart(t *testing.T) {
	t.Helper()
	d := cluster.Manager(t)
	env := slices.Clone(d.Spec.Template.Spec.Containers[0].Env)
	set := func(ctx context.Context, env []corev1.EnvVar) {
		live := cluster.Manager(t)
		live.Spec.Template.Spec.Containers[0].Env = env
		if err := cluster.Admin.Update(ctx, live); err != nil {
			t.Fatal(err)
		}
		cluster.AwaitManager(ctx, t)
	}
	cluster.StopManager(t)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: "sonde-manager"}}
	cluster.DeleteNow(t, lease)
	cert := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: certs.SecretName}}
	if err := cluster.Admin.Patch(t.Context(), cert, client.RawPatch("application/merge-patch+json", []byte(`{"data":null}`))); err != nil {
		t.Fatal(err)
	}
	for _, right := range managerRights(t) {
		if right.Verb == "patch" && right.Name != "" && present(t, right) { // what the manager itself makes
			cluster.DeleteNow(t, objectOf(t, right))
		}
	}
	cluster.StartManager(t)
	set(t.Context(), append(slices.Clone(env), corev1.EnvVar{Name: "KUBE_FEATURE_WatchListClient", Value: "false"}))
	set(t.Context(), env)
}

func stepCapture(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	d := cluster.Deployment(t, ns, "sink", 1, "sink")
	p := cluster.ReadyPods(t, d, 1)[0]
	// Another Job already has the Job's first name.
	taken := jobOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: p.Name + "-rbac"}, Spec: cluster.PodSpec("idle")})
	taken.Spec.Suspend, taken.Spec.Template.Spec.RestartPolicy = new(true), corev1.RestartPolicyNever
	cluster.CreateEventually(t, cluster.Admin, taken)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m", JobID: "rbac"})
	cluster.Stop(t, pc)
	cluster.Download(t, pc)
	token := cluster.GrantResults(t, cluster.Admin, pc)
	for range 3 { // one of the two replicas has read it twice then: its Event becomes a series
		cluster.ResultFile(t, pc, token, &pc.Status.Pods[0])
	}
	cluster.DeleteNow(t, pc)
	cluster.NothingLeft(t, string(pc.UID))
}

// stepTrace runs a trace, with a jobId that the webhook compares with other captures' jobIds.
func stepTrace(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "files", 1, "idle")
	tr := cluster.Trace(t, cluster.Admin, ns, sondev1.TraceSpec{TargetDeployment: "files", Duration: "10m", JobID: "rbac"})
	cluster.Stop(t, tr)
	cluster.GrantResults(t, cluster.Admin, tr)
	cluster.DeleteNow(t, tr)
	cluster.NothingLeft(t, string(tr.UID))
}

func stepTargets(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	for _, kind := range []sondev1.TargetKind{sondev1.TargetStatefulSet, sondev1.TargetDaemonSet} {
		pc := &sondev1.PacketCapture{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "cap-"},
			Spec:       sondev1.PacketCaptureSpec{TargetRef: &sondev1.TargetReference{Kind: kind, Name: "none"}},
		}
		if err := cluster.Admin.Create(t.Context(), pc); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want not found", kind, err)
		}
	}
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}, Handler: "runc"}
	cluster.CreateEventually(t, cluster.Admin, class)
	spec := cluster.PodSpec("sink")
	spec.RuntimeClassName = &class.Name
	cluster.Pod(t, ns, "classed", spec)
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetRef: &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: "classed"}, Duration: "10m"})
	cluster.DeleteNow(t, pc)
}

// stepLostAgent deletes the agent and its Job during a capture. The manager then checks whether the node is lost too.
func stepLostAgent(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	loseAgent(t, pc)
}

// loseAgent deletes the only agent of a capture and its Job, so that its account is lost, and waits until the manager
// notices.
func loseAgent(t *testing.T, pc *sondev1.PacketCapture) {
	t.Helper()
	agent := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.OperatorNamespace, Name: cluster.AgentPod(t, pc)}}
	job := cluster.JobsOf(t, pc)[0]
	if err := cluster.Admin.Delete(t.Context(), &job, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	cluster.Gone(t, &job, 10*time.Second)
	if err := cluster.Admin.Delete(t.Context(), agent, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, time.Minute, "the loss in the status", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if !pc.Status.Pods[0].Phase.Final() {
			return fmt.Errorf("%+v", pc.Status.Pods[0])
		}
		return nil
	})
}

// stepRefused creates a capture whose agent Pod is refused.
func stepRefused(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	cluster.RefuseAgentPods(t)
	pc := &sondev1.PacketCapture{ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "cap-"}, Spec: sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"}}
	cluster.CreateEventually(t, cluster.Admin, pc)
	cluster.Eventually(t, 90*time.Second, "the refusal in the status", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(pc), pc); err != nil {
			return err
		}
		if len(pc.Status.Pods) == 0 || pc.Status.Pods[0].Reason != sondev1.ReasonJobRefused {
			return fmt.Errorf("%+v", pc.Status.Pods)
		}
		return nil
	})
}

func stepMetrics(t *testing.T) {
	t.Helper()
	cluster.ManagerFlag(t, "--metrics-bind-address=:8443")
	ns := cluster.Namespace(t, nil)
	from := cluster.Pod(t, ns, "scraper", cluster.ShellSpec())
	allowMetrics(t, ns)
	ip := managerIP(t)
	header := http.Header{"Authorization": {"Bearer " + configOf(t, ns, "default").BearerToken}}
	cluster.Eventually(t, 20*time.Second, "metrics", func(context.Context) error {
		status, _, err := fromPod(t, from, net.JoinHostPort(ip, "8443"), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, http.MethodGet, "/metrics", header, nil)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("status %d: %w", status, err)
		}
		return nil
	})
}

func stepExpiry(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "sink", 1, "sink")
	pc := cluster.Capture(t, cluster.Admin, ns, sondev1.PacketCaptureSpec{TargetDeployment: "sink", Duration: "10m"})
	access := cluster.ResultAccess(pc, "a token that is long enough for it")
	access.Spec.ExpirationSeconds = 10
	cluster.CreateEventually(t, cluster.Admin, access)
	cluster.Gone(t, access, 30*time.Second)
}

func stepGate(t *testing.T) {
	t.Helper()
	cluster.GateWithoutItsImage(t)
	cluster.DeleteNow(t, cluster.GatedTrace(t, cluster.Deployment(t, cluster.Namespace(t, nil), "web", 1, "idle"), sondev1.TraceGate{}))
	cluster.NoGateConfiguration(t)
}

// stepFluentPVC takes a volume through its life. One finalizer Job is deleted, so that the manager makes another.
func stepFluentPVC(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.AllowFluentPVC(t, ns)
	f := cluster.FluentPVC(t, ns, func(s *sondev1.FluentPVCSpec) { s.Retention = "1h" })
	p := cluster.WriterPod(ns, "writer", f, "-stay")
	if err := cluster.Admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	claim := cluster.ClaimOf(t, p)
	b := cluster.AwaitBinding(t, ns, claim, sondev1.BindingReady, 30*time.Second)
	// The name of the second attempt's Job is taken.
	taken := jobOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: b.Name + "-2"}, Spec: cluster.FinalizerSpec("idle")})
	taken.Spec.Suspend = new(true)
	cluster.CreateEventually(t, cluster.Admin, taken)
	cluster.DeleteNow(t, p)
	cluster.AwaitBinding(t, ns, claim, sondev1.BindingFinalizerJobApplied, time.Minute)
	cluster.DeleteNow(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: b.Name + "-1"}})
	cluster.Eventually(t, time.Minute, "the refusal of the second Job", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if c := apimeta.FindStatusCondition(b.Status.Conditions, sondev1.ConditionFinalized); c == nil || c.Reason != sondev1.ReasonFinalizerRefused {
			return fmt.Errorf("phase %s, conditions %+v", b.Status.Phase, b.Status.Conditions)
		}
		return nil
	})
	cluster.DeleteNow(t, taken)
	cluster.AwaitBinding(t, ns, claim, sondev1.BindingFinalizerJobSucceeded, 2*time.Minute)
	if out, err := exec.CommandContext(t.Context(), cluster.Plugin, "fluentpvc", "discard", claim, "-n", ns, "--yes").CombinedOutput(); err != nil {
		t.Fatalf("discard: %v\n%s", err, out)
	}
	cluster.NoClaims(t, ns, time.Minute)
}

// stepIntercept intercepts a Pod's port, and lets go of it.
func stepIntercept(t *testing.T) {
	t.Helper()
	ns := cluster.Namespace(t, nil)
	cluster.Deployment(t, ns, "web", 1, "serve")
	i := cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"))
	i.Interrupt(t)
	cluster.NoIntercepts(t, time.Minute)
}

// stubAPIs are optional APIs that this cluster lacks, with just enough schema for the manager to create its objects.
func stubAPIs(t *testing.T) {
	t.Helper()
	kinds := map[string]string{
		"consoleclidownloads.console.openshift.io": "ConsoleCLIDownload", "consoleyamlsamples.console.openshift.io": "ConsoleYAMLSample",
		"servicemonitors.monitoring.coreos.com": "ServiceMonitor", "prometheusrules.monitoring.coreos.com": "PrometheusRule",
	}
	t.Cleanup(func() { // the manager watches them until it restarts
		ctx := context.WithoutCancel(t.Context())
		if err := cluster.Admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{"app.kubernetes.io/name": "sonde", "app.kubernetes.io/component": "manager"}); err != nil {
			t.Error(err)
		}
		cluster.AwaitManager(ctx, t)
	})
	for name, kind := range kinds {
		plural, group, _ := strings.Cut(name, ".")
		scope := "Namespaced"
		if group == "console.openshift.io" {
			scope = "Cluster"
		}
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"group": group, "scope": scope, "names": map[string]any{"kind": kind, "plural": plural, "singular": strings.ToLower(kind)},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			},
		}}
		// The CRD of the previous test may still be terminating.
		cluster.Eventually(t, 30*time.Second, name+" created", func(ctx context.Context) error { return cluster.Admin.Create(ctx, crd.DeepCopy()) })
		t.Cleanup(func() { _ = cluster.Admin.Delete(context.WithoutCancel(t.Context()), crd) })
		cluster.Eventually(t, 30*time.Second, name+" served", func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(group + "/v1")
			list.SetKind(kind + "List")
			return cluster.Admin.List(ctx, list)
		})
	}
	cluster.StopManager(t)
	cluster.StartManager(t)
}

// stepCollector installs a tenant's backend, and removes it.
func stepCollector(t *testing.T) {
	t.Helper()
	ns := cluster.OpenedNamespace(t)
	c := cluster.NewCollector(t, ns, map[string]any{"serviceMonitor": map[string]any{"enabled": false}}) // its admin may not give rights on these
	cluster.Create(t, c)
	cluster.AwaitCollector(t, c, sondev1.ConditionReady, "True", "", 3*time.Minute)
	cluster.DeleteNow(t, c)
	cluster.NoRelease(t, ns, time.Minute)
}
