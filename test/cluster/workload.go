package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UDPPort is where the workload's sink listens.
const UDPPort = 9999

// Deployment makes a Deployment of the workload image and waits for its Pods, which are spread over the nodes.
func Deployment(t *testing.T, ns, name string, replicas int32, args ...string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       PodSpec(args...),
			},
		},
	}
	d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
		MatchLabelKeys: []string{"pod-template-hash"}, NodeTaintsPolicy: new(corev1.NodeInclusionPolicyHonor), // not the simulated nodes
	}}
	if err := Admin.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	ReadyPods(t, d, int(replicas))
	return d
}

// PodSpec is a Pod's that runs the workload with these arguments.
func PodSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "c", Image: workload, Args: args,
		}},
	}
}

// Pod makes a Pod and waits until it is ready.
func Pod(t *testing.T, ns, name string, spec corev1.PodSpec) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	if err := Admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	Eventually(t, time.Minute, "pod "+name+" ready", func(ctx context.Context) error {
		if err := Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if !ready(p) {
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		return nil
	})
	return p
}

// ReadyPods waits until exactly n Pods of d are there, all ready, and returns them.
func ReadyPods(t *testing.T, d *appsv1.Deployment, n int) []corev1.Pod {
	t.Helper()
	return ReadyPodsWithin(t, d, n, 90*time.Second)
}

// ReadyPodsWithin is ReadyPods with another patience.
func ReadyPodsWithin(t *testing.T, d *appsv1.Deployment, n int, within time.Duration) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	Eventually(t, within, fmt.Sprintf("%d ready pods of %s", n, d.Name), func(ctx context.Context) error {
		if err := Admin.List(ctx, &pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
			return err
		}
		count := 0
		for i := range pods.Items {
			if ready(&pods.Items[i]) && pods.Items[i].DeletionTimestamp.IsZero() {
				count++
			}
		}
		if count != n || len(pods.Items) != n {
			return fmt.Errorf("%d ready of %d pods", count, len(pods.Items))
		}
		return nil
	})
	return pods.Items
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Scale sets the number of replicas.
func Scale(t *testing.T, d *appsv1.Deployment, n int32) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	if err := Admin.Patch(t.Context(), d, patch); err != nil {
		t.Fatal(err)
	}
}

// Exec runs a command in a Pod's container c and returns what it printed.
func Exec(ctx context.Context, p *corev1.Pod, command ...string) (string, error) {
	cs, err := kubernetes.NewForConfig(Config)
	if err != nil {
		return "", err
	}
	req := cs.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(p.Name).SubResource("exec").
		Param("container", "c").Param("stdout", "true").Param("stderr", "true")
	for _, a := range command {
		req = req.Param("command", a)
	}
	ex, err := remotecommand.NewSPDYExecutor(Config, "POST", req.URL())
	if err != nil {
		return "", err
	}
	var out, errOut bytes.Buffer
	if err := ex.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		return out.String(), fmt.Errorf("exec %v in %s: %w: %s", command, p.Name, err, errOut.String())
	}
	return out.String(), nil
}

// Logs returns what container c of a Pod has printed.
func Logs(ctx context.Context, p *corev1.Pod) (string, error) {
	cs, err := kubernetes.NewForConfig(Config)
	if err != nil {
		return "", err
	}
	b, err := cs.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Container: "c"}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("logs of %s: %w", p.Name, err)
	}
	return string(b), nil
}

// Sent is what the workload's sender says of itself.
type Sent struct {
	Run    uint32 `json:"run"`
	First  uint64 `json:"first"`
	Count  uint64 `json:"count"`
	Failed uint64 `json:"failed"`
}

// Send sends count numbered packets from a Pod and returns the sender's own count.
func Send(t *testing.T, from *corev1.Pod, to string, run uint32, count int, extra ...string) Sent {
	t.Helper()
	s, err := TrySend(t.Context(), from, to, run, count, extra...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TrySend is Send for a goroutine of a test, which may not end it.
func TrySend(ctx context.Context, from *corev1.Pod, to string, run uint32, count int, extra ...string) (Sent, error) {
	command := append([]string{"/workload", "send", "-to", to, "-run", strconv.Itoa(int(run)), "-count", strconv.Itoa(count)}, extra...)
	out, err := Exec(ctx, from, command...)
	if err != nil {
		return Sent{}, err
	}
	var s Sent
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return Sent{}, fmt.Errorf("the sender printed %q: %w", out, err)
	}
	if s.Count == 0 || s.Failed != 0 {
		return Sent{}, fmt.Errorf("sender in %s: %+v", from.Name, s)
	}
	return s, nil
}

// UDPAddr is the address of the sink in a Pod.
func UDPAddr(ip string) string { return fmt.Sprintf("%s:%d", ip, UDPPort) }
