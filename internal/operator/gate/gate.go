// Package gate puts the gate into Pods: an init container that comes before all others and holds up the Pod until its
// tracer is attached (docs/adr/0009-gate.md). Everything here is pure: the same Pod and options give the same answer.
//
// One rule stands above all others: a Pod that would be admitted and start without a gate is admitted and starts with
// one. So the gate asks for nothing that the Pod's own containers do not ask for.
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

	// Image of the operator, which holds the agent.
	Image string
	// TraceNamespace, TraceName and TraceUID are those of the Trace whose tracer opens the gate.
	TraceNamespace, TraceName, TraceUID string

	// Containers that the Trace records, by name; empty is all.
	Containers []string
}

// Validate reports options that make no gate.
func (o Options) Validate() error {
	if o.Image == "" || o.TraceNamespace == "" || o.TraceName == "" || o.TraceUID == "" {
		return errors.New("a gate needs an image and the namespace, name and UID of its trace")
	}
	return o.Config.Validate()
}

// Why a Pod cannot have a gate; empty if it can.
const (
	// Windows has no signals and no tracer.
	Windows = "it is to run on Windows, where nothing can be traced"
	// Mirror Pods stand for static ones: the kubelet takes its Pods from its own files, and no webhook changes those.
	Mirror = "it is a static Pod, which the kubelet starts by itself"
)

// The keys that tell of Windows and of mirror Pods (k8s.io/api has the second as corev1.MirrorPodAnnotationKey).
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

// Misses reports whether a Pod has nothing that the Trace records, so that no tracer will come for it. One that must not
// start untraced waits all the same.
func (o Options) Misses(pod *corev1.Pod) bool {
	return len(o.Containers) > 0 && !Required(pod) && !slices.Contains(o.Containers, gateconfig.ContainerName) &&
		len(target.ContainersNotFound(&pod.Spec, o.Containers)) == len(o.Containers)
}

// Protected reports whether Pods of a namespace are never gated: those that the cluster itself lives on, and the
// operator's own. The webhook's namespaceSelector leaves them out already; this holds when somebody changes it.
func Protected(namespace, operatorNamespace string) bool {
	return namespace == operatorNamespace || namespace == "openshift" ||
		strings.HasPrefix(namespace, "openshift-") || strings.HasPrefix(namespace, "kube-")
}

// ForPod returns the options for one Pod: the gate of a Pod that must not start untraced refuses to let it.
func (o Options) ForPod(pod *corev1.Pod) Options {
	if Required(pod) {
		o.OnTimeout = gateconfig.Fail
	}
	return o
}

// Container returns the gate for a Pod. Image, command and arguments are of options, all else is of the Pod.
func Container(o Options, pod *corev1.Pod) corev1.Container {
	return corev1.Container{
		Name: gateconfig.ContainerName, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{gateconfig.Executable}, Args: o.Args(),
		SecurityContext: security(&pod.Spec),
		Resources:       resources(&pod.Spec),
		// It writes its last words itself; this is for what keeps it from doing so.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// gateUser has no rights anywhere; the one of the image.
const gateUser = 65532

// security returns what passes pod-security "restricted" and OpenShift's restricted-v2 wherever the Pod does.
func security(spec *corev1.PodSpec) *corev1.SecurityContext {
	sc := &corev1.SecurityContext{
		RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	pod := cmp.Or(spec.SecurityContext, &corev1.PodSecurityContext{})
	// A user is named only against the Pod's root, with which the kubelet would refuse to start the gate: OpenShift
	// gives each container one from the namespace's range and refuses any other, elsewhere the image's own is used.
	if pod.RunAsUser != nil && *pod.RunAsUser == 0 {
		sc.RunAsUser = new(int64(gateUser))
	}
	// A profile is named only where the Pod's containers name theirs: an SCC that lists none, like anyuid, refuses every
	// Pod that has one ("seccomp may not be set"). One of the whole Pod is the gate's, too.
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
