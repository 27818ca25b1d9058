package compact

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pod is a Pod as the cache keeps it.
type Pod struct {
	Meta
	node, phase, runtimeClass name
	ip                        string
	started                   instant
	hostNetwork, hostPID      bool
	// agent is nil for any Pod but those of agents.
	agent *agent
}

// agent is what is kept of an agent's Pod beyond that.
type agent struct {
	reason, message string
	containers      []container
	// restarted are the containers that are started again by rules of their own.
	restarted []restarted
	// unscheduled says why it has no node; nil if it has.
	unscheduled *corev1.PodCondition
}

type restarted struct {
	name  name
	rules []corev1.ContainerRestartRule
}

// container is the state of one container.
type container struct {
	name            name
	state           state
	ready           bool
	started         int8 // 0 not told, 1 no, 2 yes
	exit, signal    int32
	restarts        int32
	from, until     instant
	reason, message string
}

type state int8

const (
	stateUnknown state = iota
	stateWaiting
	stateRunning
	stateTerminated
)

// OfPod returns the compact form of a Pod that was stripped to what the operator reads (target.StripPod): that, and
// nothing else, is kept. Of its containers' states images and identities are not; of containers there are names and rules.
func OfPod(p *corev1.Pod) *Pod {
	kept := &Pod{
		Meta: metaOf(&p.ObjectMeta),
		node: nameOf(p.Spec.NodeName), phase: nameOf(string(p.Status.Phase)), ip: p.Status.PodIP,
		hostNetwork: p.Spec.HostNetwork, hostPID: p.Spec.HostPID,
	}
	if p.Spec.RuntimeClassName != nil {
		kept.runtimeClass = nameOf(*p.Spec.RuntimeClassName)
	}
	if p.Status.StartTime != nil {
		kept.started = instantOf(*p.Status.StartTime)
	}
	s := &p.Status
	if s.Reason+s.Message == "" && len(s.ContainerStatuses)+len(s.Conditions)+len(p.Spec.Containers) == 0 {
		return kept
	}
	kept.agent = &agent{reason: s.Reason, message: s.Message, containers: make([]container, 0, len(s.ContainerStatuses))}
	for i := range s.ContainerStatuses {
		kept.agent.containers = append(kept.agent.containers, containerOf(&s.ContainerStatuses[i]))
	}
	for i := range p.Spec.Containers {
		kept.agent.restarted = append(kept.agent.restarted, restarted{nameOf(p.Spec.Containers[i].Name), p.Spec.Containers[i].RestartPolicyRules})
	}
	if len(s.Conditions) > 0 {
		kept.agent.unscheduled = &s.Conditions[0]
	}
	return kept
}

func containerOf(s *corev1.ContainerStatus) container {
	c := container{name: nameOf(s.Name), ready: s.Ready, restarts: s.RestartCount}
	if s.Started != nil {
		c.started = 1
		if *s.Started {
			c.started = 2
		}
	}
	switch {
	case s.State.Waiting != nil:
		c.state, c.reason, c.message = stateWaiting, s.State.Waiting.Reason, s.State.Waiting.Message
	case s.State.Running != nil:
		c.state, c.from = stateRunning, instantOf(s.State.Running.StartedAt)
	case s.State.Terminated != nil:
		t := s.State.Terminated
		c.state, c.reason, c.message, c.exit, c.signal = stateTerminated, t.Reason, t.Message, t.ExitCode, t.Signal
		c.from, c.until = instantOf(t.StartedAt), instantOf(t.FinishedAt)
	}
	return c
}

// Whole returns the Pod with all that is kept of it.
func (p *Pod) Whole() *corev1.Pod {
	whole := &corev1.Pod{
		ObjectMeta: p.whole(),
		Spec:       corev1.PodSpec{NodeName: p.node.String(), HostNetwork: p.hostNetwork, HostPID: p.hostPID},
		Status:     corev1.PodStatus{Phase: corev1.PodPhase(p.phase.String()), PodIP: p.ip, StartTime: p.started.pointer()},
	}
	if p.runtimeClass != (name{}) {
		whole.Spec.RuntimeClassName = new(p.runtimeClass.String())
	}
	if p.agent == nil {
		return whole
	}
	whole.Status.Reason, whole.Status.Message = p.agent.reason, p.agent.message
	for _, c := range p.agent.containers {
		whole.Status.ContainerStatuses = append(whole.Status.ContainerStatuses, c.whole())
	}
	for _, c := range p.agent.restarted {
		whole.Spec.Containers = append(whole.Spec.Containers, corev1.Container{Name: c.name.String(), RestartPolicyRules: slices.Clone(c.rules)})
	}
	if p.agent.unscheduled != nil {
		whole.Status.Conditions = []corev1.PodCondition{*p.agent.unscheduled}
	}
	return whole
}

func (c container) whole() corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.name.String(), Ready: c.ready, RestartCount: c.restarts}
	if c.started != 0 {
		s.Started = new(c.started == 2)
	}
	switch c.state {
	case stateUnknown:
	case stateWaiting:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.reason, Message: c.message}
	case stateRunning:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: c.from.whole()}
	case stateTerminated:
		s.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: c.exit, Signal: c.signal, Reason: c.reason, Message: c.message,
			StartedAt: c.from.whole(), FinishedAt: c.until.whole(),
		}
	}
	return s
}

// DeepCopyObject returns a *corev1.Pod: who reads the cache gets a copy, and that is the only way out of it.
func (p *Pod) DeepCopyObject() runtime.Object { return p.Whole() }

// Node that the Pod is on.
func (p *Pod) Node() string { return p.node.String() }

// Same reports whether two Pods differ in nothing but their version.
func (p *Pod) Same(other *Pod) bool {
	a, b := *p, *other
	if (a.agent == nil) != (b.agent == nil) || !a.same(&b.Meta) {
		return false
	}
	if a.agent != nil && !a.agent.same(b.agent) {
		return false
	}
	return a.node == b.node && a.phase == b.phase && a.runtimeClass == b.runtimeClass && a.ip == b.ip && a.started == b.started &&
		a.hostNetwork == b.hostNetwork && a.hostPID == b.hostPID
}

func (a *agent) same(b *agent) bool {
	if a.reason != b.reason || a.message != b.message || len(a.containers) != len(b.containers) || (a.unscheduled == nil) != (b.unscheduled == nil) {
		return false
	}
	for i := range a.containers {
		if a.containers[i] != b.containers[i] {
			return false
		}
	}
	return a.unscheduled == nil || *a.unscheduled == *b.unscheduled
}
