// Package gate injects the gate into Pods: an init container that runs before all others and delays the Pod until its tracer is
// attached (docs/adr/0009-gate.md). All functions are pure.
//
// The most important rule: a Pod that would be admitted and start without a gate is admitted and starts with one. So the gate needs
// nothing that the Pod's own containers do not need. The exception is an admission policy that does not allow the operator's image.
package gate

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/target"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// Options of a gate: who gates, and how.
type Options struct {
	gateconfig.Config

	// Image of the operator, which contains the agent.
	Image string
	// TraceNamespace, TraceName and TraceUID identify the Trace whose tracer opens the gate.
	TraceNamespace, TraceName, TraceUID string

	// Containers that the Trace records, by name; empty means all.
	Containers []string
}

// Validate returns an error for options that make no gate.
func (o Options) Validate() error {
	if o.Image == "" || o.TraceNamespace == "" || o.TraceName == "" || o.TraceUID == "" {
		return errors.New("a gate needs an image and the namespace, name and UID of its trace")
	}
	return o.Config.Validate()
}

// Reasons why a Pod cannot have a gate.
const (
	// Windows Pods have neither signals nor a tracer.
	Windows = "it runs on Windows, where nothing can be traced"
	// Mirror Pods represent static Pods, which the kubelet reads from its own files, past all webhooks.
	Mirror = "it is a static Pod, which the kubelet starts by itself"
)

// osLabel is the well-known node label of the operating system.
const osLabel = "kubernetes.io/os"

// Hindrance says why a Pod cannot have a gate; empty if it can.
func Hindrance(pod *corev1.Pod) string {
	spec := &pod.Spec
	switch {
	case spec.OS != nil && spec.OS.Name == corev1.Windows, spec.NodeSelector[osLabel] == string(corev1.Windows):
		return Windows
	case pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return Mirror
	}
	return ""
}

// Required reports whether a Pod must not start untraced where it is gated.
func Required(pod *corev1.Pod) bool { return pod.Labels[sondev1.LabelTraceRequired] == "true" }

// Misses reports whether a Pod has none of the containers that the Trace records, so that it gets no tracer. It is false for a Pod
// that must not start untraced.
func (o Options) Misses(pod *corev1.Pod) bool {
	return len(o.Containers) > 0 && !Required(pod) && !slices.Contains(o.Containers, gateconfig.ContainerName) &&
		len(target.ContainersNotFound(&pod.Spec, o.Containers)) == len(o.Containers)
}

// Protected reports whether a namespace belongs to the cluster itself or to the operator, so that its Pods are never gated. The
// webhook's namespaceSelector excludes these too; this check still holds after someone changes it.
func Protected(namespace, operatorNamespace string) bool {
	return namespace == operatorNamespace || namespace == "openshift" ||
		strings.HasPrefix(namespace, "openshift-") || strings.HasPrefix(namespace, "kube-")
}

// ForPod returns the options for one Pod. If the Pod must not start untraced, its gate fails at the timeout.
func (o Options) ForPod(pod *corev1.Pod) Options {
	if Required(pod) {
		o.OnTimeout = gateconfig.Fail
	}
	return o
}

// Container returns the gate for a Pod. The options give image, command and arguments, the Pod all else.
func Container(o Options, pod *corev1.Pod) corev1.Container {
	return corev1.Container{
		Name: gateconfig.ContainerName, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{gateconfig.Executable}, Args: o.Args(),
		SecurityContext: security(&pod.Spec),
		Resources:       resources(&pod.Spec),
		// The gate writes its own message. This covers failures before it can.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// gateUser is the user of the image and has no rights.
const gateUser = 65532

// security returns a context that passes pod-security "restricted" and OpenShift's restricted-v2 wherever the Pod does.
func security(spec *corev1.PodSpec) *corev1.SecurityContext {
	sc := &corev1.SecurityContext{
		RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	pod := cmp.Or(spec.SecurityContext, &corev1.PodSecurityContext{})
	// Set a user only if the Pod runs as root, which the kubelet would refuse for the gate. OpenShift assigns a user of the
	// namespace's range and refuses others; elsewhere the image's user applies.
	if pod.RunAsUser != nil && *pod.RunAsUser == 0 {
		sc.RunAsUser = new(int64(gateUser))
	}
	// Set a profile only if the Pod's containers set theirs: an SCC without profiles, like anyuid, refuses every Pod that has one
	// ("seccomp may not be set"). A profile of the whole Pod applies to the gate too.
	if pod.SeccompProfile == nil && slices.ContainsFunc(all(spec), namesSeccomp) {
		sc.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return sc
}

// all returns the Pod's own containers, the main ones first.
func all(spec *corev1.PodSpec) []corev1.Container {
	return slices.DeleteFunc(slices.Concat(spec.Containers, spec.InitContainers), isGate)
}

func isGate(c corev1.Container) bool { return c.Name == gateconfig.ContainerName }

func namesSeccomp(c corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.SeccompProfile != nil
}
