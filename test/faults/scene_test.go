//go:build faults

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/test/cluster"
)

// stage is a moment in the life of a capture.
type stage string

// Stages, the columns of the matrix.
const (
	// starting: the probe runs but is not attached, because its target has no process yet.
	starting stage = "starting"
	// capturing: the probe is attached, and packets arrive all the time.
	capturing stage = "capturing"
	// ending: the probe should stop but cannot, because SIGSTOP holds it.
	ending stage = "ending"
	// retained: the probe has ended by itself after packetLimit packets, and the keeper has the file.
	retained stage = "retained"
	// tracing: a Trace of the same Pod is attached, and the Pod makes numbered calls all the time.
	tracing stage = "tracing"
)

var stages = []stage{starting, capturing, ending, retained, tracing}

const (
	packetLimit = 200
	// missing is the ConfigMap without which the kubelet does not start the late target.
	missing = "late"
	// caller is the container of the Pod that makes numbered calls.
	caller = "caller"
)

// scene is the target of one fault: four captures and a trace of two Pods on one node, each in another stage.
type scene struct {
	hub, ns    string
	sink, late *corev1.Pod
	captures   map[stage]sondev1.Capture
	agents     map[stage]*corev1.Pod
	// retainFor of the capture in the stage ending; the others keep their results for long.
	retainFor string
	// refused is row.refused.
	refused string
	// numbers holds the packets in each capture's file, by the sender's run; dropped is the number of dropped packets
	// in the status.
	numbers map[stage]map[uint32]map[uint64]int
	dropped map[stage]uint64
	// elsewhere lists the Pods that were on the lost node, by the prefix of their names.
	elsewhere map[client.ObjectKey]int
	// released says that starting and ending are no longer held.
	released bool
}

// makeTargets creates the captured Pods, and one that sends numbered packets all the time.
func (s *scene) makeTargets(t *testing.T) {
	t.Helper()
	s.hub = cluster.Namespace(t, map[string]string{sondev1.LabelHub: "true"})
	s.ns = cluster.Namespace(t, nil)
	on := func(node string, args ...string) corev1.PodSpec {
		spec := cluster.PodSpec(args...)
		spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
		return spec
	}
	sink := on(hurt, "sink")
	calls := *sink.Containers[0].DeepCopy()
	calls.Name, calls.Args = caller, []string{"numbers", "-path", numbersPath}
	sink.Containers = append(sink.Containers, calls)
	s.sink = cluster.Pod(t, s.ns, "sink", sink)
	cluster.Pod(t, s.ns, "sender", on(spare, "send", "-to", cluster.UDPAddr(s.sink.Status.PodIP), "-count", "1000000000", "-rate", "500"))
	spec := on(hurt, "idle")
	spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: missing}},
	}}}
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	s.late = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "late"}, Spec: spec}
	if err := cluster.Admin.Create(t.Context(), s.late); err != nil {
		t.Fatal(err)
	}
}

// makeCaptures creates one capture per stage and brings it there.
func (s *scene) makeCaptures(t *testing.T) {
	t.Helper()
	s.captures, s.agents = map[stage]sondev1.Capture{}, map[stage]*corev1.Pod{}
	attached := []stage{retained, ending, capturing, tracing}
	for _, st := range attached {
		s.captures[st] = s.create(t, st)
	}
	for _, st := range attached {
		s.agents[st] = awaitAgent(t, s.captures[st])
	}
	for _, st := range attached[1:] {
		cluster.AwaitCapturing(t, s.captures[st])
	}
	cluster.AwaitFinal(t, s.captures[retained], time.Minute)
	s.signal(t, ending, probe, "STOP")
	s.askToStop(t, ending)
	s.awaitFile(t, s.agents[ending], "control/stop")
	s.captures[starting] = s.create(t, starting)
	s.agents[starting] = awaitAgent(t, s.captures[starting])
	s.awaitFile(t, s.agents[starting], "results/progress.json")
}

func (s *scene) create(t *testing.T, st stage) sondev1.Capture {
	t.Helper()
	capture := s.build(st)
	// Right after a fault of the manager its webhook may not answer yet.
	cluster.Eventually(t, time.Minute, "capture created", func(ctx context.Context) error { return cluster.Admin.Create(ctx, capture) })
	return capture
}

func (s *scene) build(st stage) sondev1.Capture {
	meta := metav1.ObjectMeta{Namespace: s.hub, Name: string(st)}
	target := &sondev1.TargetReference{Kind: sondev1.TargetPod, Name: s.sink.Name}
	const lasts = "10m"
	if st == tracing {
		return &sondev1.Trace{ObjectMeta: meta, Spec: sondev1.TraceSpec{
			TargetNamespace: s.ns, TargetRef: target, Duration: lasts, RetainFor: lasts, FollowPods: new(false),
			Events: []sondev1.TraceGroup{sondev1.TraceProcess, sondev1.TraceFile},
		}}
	}
	pc := &sondev1.PacketCapture{ObjectMeta: meta, Spec: sondev1.PacketCaptureSpec{
		TargetNamespace: s.ns, TargetRef: target,
		Filter: fmt.Sprintf("udp port %d", cluster.UDPPort), Duration: lasts, RetainFor: lasts, FollowPods: new(false),
	}}
	switch {
	case st == starting:
		target.Name = s.late.Name
	case st == retained:
		pc.Spec.MaxPackets = new(int64(packetLimit))
	case st == ending && s.retainFor != "":
		pc.Spec.RetainFor = s.retainFor
	}
	return pc
}

// copyOf copies a capture for calls that write into their argument.
func copyOf(capture sondev1.Capture) sondev1.Capture {
	return capture.DeepCopyObject().(sondev1.Capture)
}

// askToStop sets spec.stop.
func (s *scene) askToStop(t *testing.T, st stage) {
	t.Helper()
	cluster.Eventually(t, time.Minute, "spec.stop set", func(ctx context.Context) error {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"stop":true}}`))
		return cluster.Admin.Patch(ctx, copyOf(s.captures[st]), patch)
	})
}

// awaitAgent waits until the probe of a capture runs, and returns its Pod.
func awaitAgent(t *testing.T, capture sondev1.Capture) *corev1.Pod {
	t.Helper()
	var agent *corev1.Pod
	cluster.Eventually(t, time.Minute, "probe of "+capture.GetName()+" runs", func(ctx context.Context) error {
		var pods corev1.PodList
		err := cluster.Admin.List(ctx, &pods, client.InNamespace(cluster.OperatorNamespace), client.MatchingLabels{sondev1.LabelUID: string(capture.GetUID())})
		if err != nil || len(pods.Items) != 1 {
			return fmt.Errorf("%d Pods %s: %w", len(pods.Items), states(pods.Items), err)
		}
		agent = &pods.Items[0]
		if len(agent.Status.ContainerStatuses) != 2 || containerID(agent, probe) == "" || containerID(agent, keeper) == "" {
			return fmt.Errorf("%+v", agent.Status)
		}
		return nil
	})
	return agent
}

// states formats the states of Pods for the message of a test that found other Pods than it wants.
func states(pods []corev1.Pod) string {
	var all []string
	for i := range pods {
		all = append(all, fmt.Sprintf("%s, made %s: %+v", pods[i].Name, pods[i].CreationTimestamp.Format(time.TimeOnly), pods[i].Status))
	}
	return strings.Join(all, "; ")
}

// Containers of an agent's Pod.
const (
	probe  = "probe"
	keeper = "keeper"
)

func containerID(p *corev1.Pod, container string) string {
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.Name == container {
			return strings.TrimPrefix(c.ContainerID, "containerd://")
		}
	}
	return ""
}

// pids returns the processes of a container on its node.
func pids(t *testing.T, p *corev1.Pod, container string) []string {
	t.Helper()
	return processesOf(t, p.Spec.NodeName, containerID(p, container))
}

// processesOf lists the processes of a container, given by ID, on a node.
func processesOf(t *testing.T, node, id string) []string {
	t.Helper()
	return strings.Fields(cluster.OnNode(t, node, "sh", "-c", "grep -l "+id+" /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3; true"))
}

// signal sends a signal to the processes of a container of a capture's agent.
func (s *scene) signal(t *testing.T, st stage, container, signal string) {
	t.Helper()
	signalContainer(t, s.agents[st], container, signal)
}

func signalContainer(t *testing.T, p *corev1.Pod, container, signal string) {
	t.Helper()
	found := pids(t, p, container)
	if len(found) == 0 {
		t.Fatalf("found no process of container %s of %s", container, p.Name)
	}
	cluster.OnNode(t, p.Spec.NodeName, append([]string{"kill", "-" + signal}, found...)...)
}

// volumes returns the folder of a Pod's emptyDirs on its node.
func volumes(p *corev1.Pod) string {
	return "/var/lib/kubelet/pods/" + string(p.UID) + "/volumes/kubernetes.io~empty-dir/"
}

func (s *scene) awaitFile(t *testing.T, agent *corev1.Pod, name string) {
	t.Helper()
	cluster.Eventually(t, 30*time.Second, name+" of "+agent.Name, func(context.Context) error {
		if out := cluster.OnNode(t, hurt, "sh", "-c", "ls "+volumes(agent)+name+" 2>&1; true"); strings.Contains(out, "No such") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// release ends the holds: the late target gets its ConfigMap, and the stopped probe continues.
func (s *scene) release(t *testing.T) {
	t.Helper()
	if s.released {
		return
	}
	s.released = true
	s.resume(t)
	cluster.Eventually(t, time.Minute, "late target released", func(ctx context.Context) error {
		var ns corev1.Namespace
		if err := cluster.Admin.Get(ctx, client.ObjectKey{Name: s.ns}, &ns); client.IgnoreNotFound(err) != nil {
			return err
		}
		if ns.Name == "" || ns.DeletionTimestamp != nil {
			return nil
		}
		err := cluster.Admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: missing}})
		return client.IgnoreAlreadyExists(err)
	})
}

// resume lets the stopped probe continue if it still runs.
func (s *scene) resume(t *testing.T) {
	t.Helper()
	if found := pids(t, s.agents[ending], probe); len(found) > 0 {
		cluster.OnNode(t, hurt, "sh", "-c", "kill -CONT "+strings.Join(found, " ")+" 2>/dev/null; true")
	}
}
