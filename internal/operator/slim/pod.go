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
	// claims has the names of its PersistentVolumeClaims, joined by separator.
	claims name
	// agent is set for agents' Pods and for Pods with a FluentPVC, and gate for gated Pods.
	agent *agent
	gate  *container
}

// place has the fields that are equal for many Pods of a node.
type place struct {
	node, phase, runtimeClass      string
	hasClass, hostNetwork, hostPID bool
}

// agent has the additional fields of an agent's Pod, or of one with a FluentPVC.
type agent struct {
	reason, message string
	containers      []container
	// restarted has the names of the containers with restart rules, joined by separator.
	restarted name
	// unscheduled is the condition that says why the Pod has no node, or nil.
	unscheduled *corev1.PodCondition
}

// container is the state of one container.
type container struct {
	name         name
	state        state
	ready        bool
	started      int8 // 0 unknown, 1 false, 2 true
	exit, signal int32
	restarts     int32
	from, until  instant
	last         instant // when it ended before its last restart
	reason       name
	message      string
	id           string // of the gate that ended
}

// separator of names of containers and claims, which cannot contain it.
const separator = ","

type state int8

const (
	stateUnknown state = iota
	stateWaiting
	stateRunning
	stateTerminated
)

// FromPod returns the slim form of a Pod that target.StripAgent has reduced to the fields that the operator reads. It drops
// the images and IDs of container states, except for the ID of a gate that ended, and the content of restart rules. It keeps
// the gate as the only init container.
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
	var claims []string
	for i := range p.Spec.Volumes {
		if c := p.Spec.Volumes[i].PersistentVolumeClaim; c != nil {
			claims = append(claims, c.ClaimName)
		}
	}
	kept.claims = nameOf(strings.Join(claims, separator))
	s := &p.Status
	if len(s.InitContainerStatuses) > 0 {
		kept.gate = new(containerOf(&s.InitContainerStatuses[0]))
		if ended := s.InitContainerStatuses[0].State.Terminated; ended != nil {
			kept.gate.id = ended.ContainerID
		}
	}
	if s.Reason+s.Message == "" && len(s.ContainerStatuses)+len(s.Conditions)+len(p.Spec.Containers) == 0 {
		return kept
	}
	kept.agent = &agent{reason: s.Reason, message: s.Message, containers: make([]container, 0, len(s.ContainerStatuses))}
	for i := range s.ContainerStatuses {
		c := containerOf(&s.ContainerStatuses[i])
		if last := s.ContainerStatuses[i].LastTerminationState.Terminated; last != nil {
			c.last = instantOf(last.FinishedAt)
		}
		kept.agent.containers = append(kept.agent.containers, c)
	}
	var restarted []string
	for i := range p.Spec.Containers {
		restarted = append(restarted, p.Spec.Containers[i].Name)
	}
	kept.agent.restarted = nameOf(strings.Join(restarted, separator))
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

// Expand returns the Pod with the fields that are kept.
func (p *Pod) Expand() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: p.expand(),
		Spec:       p.Spec(),
		Status:     corev1.PodStatus{Phase: p.Phase(), PodIP: p.ip, StartTime: p.started.pointer()},
	}
	for _, c := range p.Claims() {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	if p.gate != nil {
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{p.gate.expand()}
	}
	if p.agent == nil {
		return pod
	}
	pod.Status.Reason, pod.Status.Message = p.agent.reason, p.agent.message
	for _, c := range p.agent.containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, c.expand())
	}
	for c := range strings.SplitSeq(p.agent.restarted.String(), separator) {
		if c != "" {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
				Name: c, RestartPolicyRules: []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart}},
			})
		}
	}
	if p.agent.unscheduled != nil {
		pod.Status.Conditions = []corev1.PodCondition{*p.agent.unscheduled}
	}
	return pod
}

func (c container) expand() corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.name.String(), Ready: c.ready, RestartCount: c.restarts}
	if c.started != 0 {
		s.Started = new(c.started == 2)
	}
	if c.last != 0 {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: c.last.expand()}
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
			StartedAt: c.from.expand(), FinishedAt: c.until.expand(), ContainerID: c.id,
		}
	}
	return s
}

// DeepCopyObject returns a *corev1.Pod: readers of the cache get only copies.
func (p *Pod) DeepCopyObject() runtime.Object { return p.Expand() }

// Node of the Pod, or empty.
func (p *Pod) Node() string { return p.place.Value().node }

// Phase of the Pod.
func (p *Pod) Phase() corev1.PodPhase { return corev1.PodPhase(p.place.Value().phase) }

// Claims are the names of the Pod's PersistentVolumeClaims.
func (p *Pod) Claims() []string {
	if p.claims == (name{}) {
		return nil
	}
	return strings.Split(p.claims.String(), separator)
}

// IP of the Pod.
func (p *Pod) IP() string { return p.ip }

// Spec returns the Pod's spec without its containers.
func (p *Pod) Spec() corev1.PodSpec {
	at := p.place.Value()
	spec := corev1.PodSpec{NodeName: at.node, HostNetwork: at.hostNetwork, HostPID: at.hostPID}
	if at.hasClass {
		spec.RuntimeClassName = new(at.runtimeClass)
	}
	return spec
}

// Equal reports whether two Pods are equal except for their resourceVersion.
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
	return a.place == b.place && a.ip == b.ip && a.started == b.started && a.claims == b.claims
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
