package slim

import (
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Pod is a Pod as the cache keeps it.
type Pod struct {
	Meta
	place   unique.Handle[place]
	ip      string
	started instant
	// agent is nil for any Pod but those of agents, gate for any but gated ones.
	agent *agent
	gate  *container
}

// place is where a Pod runs, and whether it does: many have the same.
type place struct {
	node, phase, runtimeClass      string
	hasClass, hostNetwork, hostPID bool
}

// agent is what is kept of an agent's Pod beyond that.
type agent struct {
	reason, message string
	containers      []container
	// restarted are the containers that are started again by rules of their own.
	restarted name
	// unscheduled says why it has no node; nil if it has.
	unscheduled *corev1.PodCondition
}

// container is the state of one container.
type container struct {
	name         name
	state        state
	ready        bool
	started      int8 // 0 not told, 1 no, 2 yes
	exit, signal int32
	restarts     int32
	from, until  instant
	reason       name
	message      string
}

// between are the names of containers, which have none.
const between = ","

type state int8

const (
	stateUnknown state = iota
	stateWaiting
	stateRunning
	stateTerminated
)

// FromPod returns the compact form of a Pod that was stripped to what the operator reads (target.StripPod): that, and
// nothing else, is kept. Of its containers' states images and identities are not; of
// containers that are started again there are the names, and of the rules for it only that there are some; of init
// containers there is the gate.
func FromPod(p *corev1.Pod) *Pod {
	at := place{
		node: p.Spec.NodeName, phase: string(p.Status.Phase), hasClass: p.Spec.RuntimeClassName != nil,
		hostNetwork: p.Spec.HostNetwork, hostPID: p.Spec.HostPID,
	}
	if at.hasClass {
		at.runtimeClass = *p.Spec.RuntimeClassName
	}
	kept := &Pod{Meta: metaOf(&p.ObjectMeta), place: unique.Make(at), ip: strings.Clone(p.Status.PodIP)}
	if p.Status.StartTime != nil {
		kept.started = instantOf(*p.Status.StartTime)
	}
	s := &p.Status
	if len(s.InitContainerStatuses) > 0 {
		kept.gate = new(containerOf(&s.InitContainerStatuses[0]))
	}
	if s.Reason+s.Message == "" && len(s.ContainerStatuses)+len(s.Conditions)+len(p.Spec.Containers) == 0 {
		return kept
	}
	kept.agent = &agent{reason: s.Reason, message: s.Message, containers: make([]container, 0, len(s.ContainerStatuses))}
	for i := range s.ContainerStatuses {
		kept.agent.containers = append(kept.agent.containers, containerOf(&s.ContainerStatuses[i]))
	}
	var again []string
	for i := range p.Spec.Containers {
		again = append(again, p.Spec.Containers[i].Name)
	}
	kept.agent.restarted = nameOf(strings.Join(again, between))
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
		c.state, c.reason, c.message = stateWaiting, nameOf(s.State.Waiting.Reason), s.State.Waiting.Message
	case s.State.Running != nil:
		c.state, c.from = stateRunning, instantOf(s.State.Running.StartedAt)
	case s.State.Terminated != nil:
		t := s.State.Terminated
		c.state, c.reason, c.message, c.exit, c.signal = stateTerminated, nameOf(t.Reason), t.Message, t.ExitCode, t.Signal
		c.from, c.until = instantOf(t.StartedAt), instantOf(t.FinishedAt)
	}
	return c
}

// Expand returns the Pod with all that is kept of it.
func (p *Pod) Expand() *corev1.Pod {
	whole := &corev1.Pod{
		ObjectMeta: p.expand(),
		Spec:       p.Spec(),
		Status:     corev1.PodStatus{Phase: corev1.PodPhase(p.place.Value().phase), PodIP: p.ip, StartTime: p.started.pointer()},
	}
	if p.gate != nil {
		whole.Status.InitContainerStatuses = []corev1.ContainerStatus{p.gate.expand()}
	}
	if p.agent == nil {
		return whole
	}
	whole.Status.Reason, whole.Status.Message = p.agent.reason, p.agent.message
	for _, c := range p.agent.containers {
		whole.Status.ContainerStatuses = append(whole.Status.ContainerStatuses, c.expand())
	}
	for c := range strings.SplitSeq(p.agent.restarted.String(), between) {
		if c != "" {
			whole.Spec.Containers = append(whole.Spec.Containers, corev1.Container{
				Name: c, RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}},
			})
		}
	}
	if p.agent.unscheduled != nil {
		whole.Status.Conditions = []corev1.PodCondition{*p.agent.unscheduled}
	}
	return whole
}

func (c container) expand() corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.name.String(), Ready: c.ready, RestartCount: c.restarts}
	if c.started != 0 {
		s.Started = new(c.started == 2)
	}
	switch c.state {
	case stateUnknown:
	case stateWaiting:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.reason.String(), Message: c.message}
	case stateRunning:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: c.from.expand()}
	case stateTerminated:
		s.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: c.exit, Signal: c.signal, Reason: c.reason.String(), Message: c.message,
			StartedAt: c.from.expand(), FinishedAt: c.until.expand(),
		}
	}
	return s
}

// DeepCopyObject returns a *corev1.Pod: who reads the cache gets a copy, and that is the only way out of it.
func (p *Pod) DeepCopyObject() runtime.Object { return p.Expand() }

// Node that the Pod is on.
func (p *Pod) Node() string { return p.place.Value().node }

// IP of the Pod.
func (p *Pod) IP() string { return p.ip }

// Spec says where and how the Pod runs, without its containers.
func (p *Pod) Spec() corev1.PodSpec {
	at := p.place.Value()
	spec := corev1.PodSpec{NodeName: at.node, HostNetwork: at.hostNetwork, HostPID: at.hostPID}
	if at.hasClass {
		spec.RuntimeClassName = new(at.runtimeClass)
	}
	return spec
}

// Equal reports whether two Pods differ in nothing but their version.
func (p *Pod) Equal(other *Pod) bool {
	a, b := *p, *other
	if (a.agent == nil) != (b.agent == nil) || !a.equal(&b.Meta) {
		return false
	}
	if a.agent != nil && !a.agent.equal(b.agent) {
		return false
	}
	if (a.gate == nil) != (b.gate == nil) || a.gate != nil && *a.gate != *b.gate {
		return false
	}
	return a.place == b.place && a.ip == b.ip && a.started == b.started
}

func (a *agent) equal(b *agent) bool {
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
