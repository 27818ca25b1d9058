package sidecar

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
)

// Injection has what differs between the Pods of one FluentPVC.
type Injection struct {
	// Claim is the name of the Pod's claim.
	Claim string
	// Annotation is the signed value of sondev1.AnnotationClaim.
	Annotation string
	// Reinvoked says that the Pod carries a valid annotation for this claim, because this webhook has changed the Pod before. Then
	// changes that other webhooks made to the sidecar stay.
	Reinvoked bool
	// Earlier is the template of the claim that the Pod carries, if the Pod is a copy of one whose binding exists; nil otherwise.
	Earlier *sondev1.FluentPVCSpec
}

// call is which call for a Pod this is. It decides about names that the Pod uses already.
type call int

const (
	// first call: such a name is the user's, and refused.
	first call = iota
	// copied: the Pod carries an annotation of another Pod, or a forged one. Such a name is replaced.
	copied
	// reinvoked: such a name is ours, and changed as little as possible.
	reinvoked
)

// Inject adds the volume, the sidecar, the mounts and the environment variables of a FluentPVC to a Pod, and the annotation that
// names the claim. Each error is for the user. The Pod is partly changed after an error.
func Inject(pod *corev1.Pod, t *sondev1.FluentPVCSpec, in Injection) error {
	if err := checkPod(pod, t); err != nil {
		return err
	}
	c := first
	if carried, ok := pod.Annotations[sondev1.AnnotationClaim]; ok {
		if c = reinvoked; !in.Reinvoked {
			c = copied
			removeEarlier(&pod.Spec, t, in.Earlier, carried)
		}
	}
	if err := checkContainers(&pod.Spec, t, c); err != nil {
		return err
	}
	p := partsOf(t, in.Claim)
	if err := p.addVolumes(&pod.Spec, c); err != nil {
		return err
	}
	if err := addSidecar(&pod.Spec, t, c); err != nil {
		return err
	}
	if err := p.addToContainers(&pod.Spec); err != nil {
		return err
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[sondev1.AnnotationClaim] = in.Annotation
	return nil
}

// addSidecar puts the sidecar behind all containers, or as a native one before all init containers but the gate, which delays them
// all.
func addSidecar(spec *corev1.PodSpec, t *sondev1.FluentPVCSpec, c call) error {
	want := t.SidecarContainerTemplate.DeepCopy()
	list, other := &spec.Containers, &spec.InitContainers
	if t.SidecarMode == sondev1.SidecarNative {
		list, other = other, list
		want.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	if c == first && has(spec.Containers, want.Name) || c == first && has(spec.InitContainers, want.Name) || hasEphemeral(spec, want.Name) {
		return fmt.Errorf("container name %q, which the sidecar has, is already in use: rename that container", want.Name)
	}
	*other = slices.DeleteFunc(*other, named(want.Name))
	at := slices.IndexFunc(*list, named(want.Name))
	if at >= 0 && c == reinvoked {
		want = restored((*list)[at], want)
	}
	switch {
	case t.SidecarMode == sondev1.SidecarNative:
		rest := slices.DeleteFunc(*list, named(want.Name))
		*list = slices.Insert(rest, behindGate(rest), *want)
	case at >= 0:
		(*list)[at] = *want
	default:
		*list = append(*list, *want)
	}
	return nil
}

func behindGate(inits []corev1.Container) int {
	if len(inits) > 0 && isGate(inits[0]) {
		return 1
	}
	return 0
}

func isGate(c corev1.Container) bool { return c.Name == gateconfig.ContainerName }

func named(name string) func(corev1.Container) bool {
	return func(c corev1.Container) bool { return c.Name == name }
}

func has(list []corev1.Container, name string) bool { return slices.ContainsFunc(list, named(name)) }

func hasEphemeral(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}
