//go:build e2e

package intercept

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// TestInterceptRollout replaces all Pods in mid-intercept. The namespace admits only restricted Pods.
func TestInterceptRollout(t *testing.T) {
	ns := cluster.Namespace(t, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
	web := cluster.NewDeployment(ns, "web", 3, "serve")
	restrict(&web.Spec.Template.Spec)
	cluster.Create(t, web)
	cluster.ReadyPods(t, web, 3)
	idle := cluster.PodSpec("idle")
	restrict(&idle)
	asker := cluster.Pod(t, ns, "asker", idle)
	i := cluster.Intercept(t, ns, "web", 3, "--to", cluster.Laptop(t, "laptop"), "--header", mine)
	pods := cluster.RestartPods(t, web)
	i.Await(t, 3, 30*time.Second)
	want(t, asker, pods, mine, "laptop")
	want(t, asker, pods, "", "")
	i.Interrupt(t)
	want(t, asker, pods, mine, "")
	cluster.NoIntercepts(t, time.Minute)
	unchanged(t, pods)
}

// TestInterceptAutoscaled lets a HorizontalPodAutoscaler scale the target. The cluster has no metrics, but its bounds are obeyed.
func TestInterceptAutoscaled(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	web := cluster.Deployment(t, ns, "web", 1, "serve")
	asker := cluster.Pod(t, ns, "asker", cluster.PodSpec("idle"))
	i := cluster.Intercept(t, ns, "web", 1, "--to", cluster.Laptop(t, "laptop"), "--header", mine)
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    new(int32(4)), MaxReplicas: 4,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse("1"))},
			}}},
		},
	}
	cluster.Create(t, scaler)
	pods := cluster.ReadyPods(t, web, 4)
	i.Await(t, 4, 30*time.Second)
	want(t, asker, pods, mine, "laptop")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"minReplicas":1,"maxReplicas":2}}`))
	if err := cluster.Admin.Patch(t.Context(), scaler, patch); err != nil {
		t.Fatal(err)
	}
	pods = cluster.ReadyPods(t, web, 2)
	i.Await(t, 2, 30*time.Second)
	want(t, asker, pods, mine, "laptop")
	i.Interrupt(t)
	cluster.NoIntercepts(t, time.Minute)
	unchanged(t, pods)
}

// TestInterceptProbes intercepts every connection to the probed ports while nothing answers on the developer's machine. The probes of
// the kubelet stay green: those of running Pods, and those of a Pod that starts in mid-intercept.
func TestInterceptProbes(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	port := intstr.FromInt32(8080)
	for name, handler := range map[string]corev1.ProbeHandler{
		"http": {HTTPGet: &corev1.HTTPGetAction{Port: port, Path: "/healthz"}},
		"tcp":  {TCPSocket: &corev1.TCPSocketAction{Port: port}},
		"grpc": {GRPC: &corev1.GRPCAction{Port: port.IntVal}},
		"exec": {Exec: &corev1.ExecAction{Command: []string{"/workload", "get", "-url", "http://127.0.0.1:8080/"}}},
	} {
		t.Run(name, func(t *testing.T) {
			serve := "serve"
			if name == "grpc" {
				serve = "healthy"
			}
			d := cluster.NewDeployment(ns, name, 1, serve)
			c := &d.Spec.Template.Spec.Containers[0]
			strict := corev1.Probe{ProbeHandler: handler, PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 1}
			c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = strict.DeepCopy(), strict.DeepCopy(), strict.DeepCopy()
			// Until then a carrier has time to take the port.
			c.StartupProbe.InitialDelaySeconds = 10
			cluster.Create(t, d)
			cluster.ReadyPods(t, d, 1)
			args := []string{"--to", refusing(t)}
			if name == "exec" {
				args = append(args, "--header", mine) // its requests are no kubelet's, and would fail as all others
			}
			i := cluster.Intercept(t, ns, name, 1, args...)
			cluster.Scale(t, d, 2)
			i.Await(t, 2, 30*time.Second)
			pods := cluster.ReadyPods(t, d, 2)
			time.Sleep(10 * time.Second)
			now := cluster.ReadyPods(t, d, 2)
			for p := range pods {
				if was, is := readySince(&pods[p]), readySince(&now[p]); !was.Equal(&is) {
					t.Errorf("Pod %s was not ready all the time: since %s, then since %s", pods[p].Name, was, is)
				}
			}
			i.Interrupt(t)
			unchanged(t, now)
		})
	}
	cluster.NoIntercepts(t, time.Minute)
}

// TestInterceptHooks checks that the app of an intercepted port answers the kubelet's preStop hook, although the developer's process would
// refuse it. A hook to a port without a listener shows the event of one that fails.
func TestInterceptHooks(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	const failed = "FailedPreStopHook"
	pods := map[string]corev1.Pod{}
	for name, port := range map[string]int32{"web": 8080, "control": 9999} {
		d := cluster.NewDeployment(ns, name, 1, "serve")
		spec := &d.Spec.Template.Spec
		spec.TerminationGracePeriodSeconds = new(int64(30))
		hook := &corev1.HTTPGetAction{Path: "/stop", Port: intstr.FromInt32(port)}
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: hook}}
		cluster.Create(t, d)
		pods[name] = cluster.ReadyPods(t, d, 1)[0]
	}
	i := cluster.Intercept(t, ns, "web", 1, "--to", refusing(t))
	for _, p := range pods {
		cluster.DeleteNow(t, &p)
		cluster.Gone(t, &p, time.Minute)
	}
	cluster.Eventually(t, time.Minute, "an event of the hook that fails", func(ctx context.Context) error {
		var events corev1.EventList
		if err := cluster.Admin.List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		hooks := map[string]string{}
		for _, e := range events.Items {
			if e.Reason == failed {
				hooks[e.InvolvedObject.Name] = e.Message
			}
		}
		if message, ok := hooks[pods["web"].Name]; ok {
			t.Fatalf("the app did not get its hook: %s", message)
		}
		if _, ok := hooks[pods["control"].Name]; !ok {
			return fmt.Errorf("there is none; others: %v", hooks)
		}
		return nil
	})
	i.Interrupt(t)
	cluster.NoIntercepts(t, time.Minute)
}

// TestInterceptProbesOfADeafApp checks that a TCP probe fails while the app does not listen, although a carrier could answer.
func TestInterceptProbesOfADeafApp(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	spec := cluster.PodSpec("serve", "-listen", ":8081")
	spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "deaf"}, Spec: spec}
	cluster.Create(t, p)
	cluster.Eventually(t, time.Minute, "the app runs", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the Pod is %s", p.Status.Phase)
		}
		return nil
	})
	was := conditionOf(p, corev1.PodReady)
	reason(t, ns, p.Name, sondev1.ReasonNothingListens, "nothing listens on port")
	time.Sleep(2 * time.Second)
	if err := cluster.Admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if is := conditionOf(p, corev1.PodReady); is.Status != corev1.ConditionFalse || !is.LastTransitionTime.Equal(&was.LastTransitionTime) {
		t.Errorf("the Pod was ready meanwhile: %+v, then %+v", was, is)
	}
	cluster.NoIntercepts(t, time.Minute)
}

// TestInterceptNotPossible names the reason within 30 s.
func TestInterceptNotPossible(t *testing.T) {
	ns := cluster.Namespace(t, nil)
	t.Run("sandbox", func(t *testing.T) {
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "kata-"}, Handler: "runc"}
		cluster.Create(t, class)
		spec := cluster.PodSpec("serve")
		spec.RuntimeClassName = &class.Name
		cluster.Pod(t, ns, "sandboxed", spec)
		reason(t, ns, "sandboxed", sondev1.ReasonNotInterceptable, "runs in a sandbox (RuntimeClass "+class.Name+")")
	})
	t.Run("host network", func(t *testing.T) {
		spec := cluster.PodSpec("serve", "-listen", "127.0.0.1:18080")
		spec.HostNetwork = true
		cluster.Pod(t, ns, "host", spec)
		cmd, _, errOut := cluster.StartPlugin(t, "intercept", "pod/host", "-n", ns, "--port", "18080", "--to", "127.0.0.1:1")
		if cmd.Wait() == nil {
			t.Error("an intercept of a Pod in its node's network is admitted")
		}
		errOut.Await(t, time.Second, "hostNetwork: true")
	})
	t.Run("full node", func(t *testing.T) {
		p := cluster.Pod(t, ns, "crowded", cluster.PodSpec("serve"))
		fill(t, p.Spec.NodeName, ns)
		reason(t, ns, "crowded", sondev1.ReasonCarriersStarting, "Insufficient cpu")
	})
	cluster.NoIntercepts(t, time.Minute)
}

// reason intercepts a Pod, and waits for the reason why that is not possible.
func reason(t *testing.T, ns, pod, reason, message string) {
	t.Helper()
	cmd, out, errOut := cluster.StartPlugin(t, "intercept", "pod/"+pod, "-n", ns, "--port", "8080", "--to", "127.0.0.1:1", "--name", pod)
	q := &sondev1.InterceptRequest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: pod}}
	cluster.Eventually(t, 30*time.Second, "a reason", func(ctx context.Context) error {
		if err := cluster.Admin.Get(ctx, client.ObjectKeyFromObject(q), q); err != nil {
			return err
		}
		for _, c := range q.Status.Conditions {
			if c.Type == sondev1.ConditionIntercepted && c.Reason == reason && strings.Contains(c.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("%+v", q.Status)
	})
	errOut.Await(t, 5*time.Second, message)
	cluster.DeleteNow(t, q)
	if err := cmd.Wait(); err != nil {
		t.Errorf("kubectl sonde intercept: %v\n%s%s", err, out, errOut)
	}
}

// fill takes all CPU of a node that is not requested yet.
func fill(t *testing.T, node, ns string) {
	t.Helper()
	n := &corev1.Node{}
	if err := cluster.Admin.Get(t.Context(), client.ObjectKey{Name: node}, n); err != nil {
		t.Fatal(err)
	}
	var pods corev1.PodList
	if err := cluster.Admin.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	free := n.Status.Allocatable.Cpu().MilliValue()
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName != node || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for c := range p.Spec.Containers {
			free -= p.Spec.Containers[c].Resources.Requests.Cpu().MilliValue()
		}
	}
	spec := cluster.PodSpec("idle")
	spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(free-10, resource.DecimalSI)}
	cluster.Pod(t, ns, "filler", spec)
}

// restrict makes a Pod one that a restricted namespace admits.
func restrict(spec *corev1.PodSpec) {
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: new(true), RunAsUser: new(int64(1000)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// refusing returns an address at which nothing listens.
func refusing(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

func readySince(p *corev1.Pod) metav1.Time {
	if c := conditionOf(p, corev1.PodReady); c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime
	}
	return metav1.Time{}
}

func conditionOf(p *corev1.Pod, of corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return corev1.PodCondition{}
}
