// Package sidecar puts the volume and the sidecar of a FluentPVC into Pods. All functions are pure.
package sidecar

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// Keys with which a Pod names its FluentPVC.
var Keys = []string{sondev1.KeyFluentPVC, sondev1.KeyFluentPVCSource}

// WebhookName of the webhook for Pods that name a FluentPVC. The creator of a Pod reads it in the error while the operator is down.
var WebhookName = "fluentpvc-pods." + sondev1.GroupVersion.Group

// maxNameBytes bounds a user's name in a message.
const maxNameBytes = 253

// Named returns the FluentPVC that a Pod names by an annotation or a label, and "" if it names none. A Pod that names two is an
// error for the user.
func Named(pod metav1.Object) (string, error) {
	var name, from string
	for _, m := range []struct {
		kind   string
		values map[string]string
	}{{"annotation", pod.GetAnnotations()}, {"label", pod.GetLabels()}} {
		for _, key := range Keys {
			value, where := m.values[key], m.kind+" "+key
			switch {
			case value == "" || value == name:
			case name == "":
				name, from = value, where
			default:
				return "", fmt.Errorf("the Pod names two FluentPVCs: %s says %q, and %s says %q: remove one of them, or give both the same value",
					from, text.Ellipsis(name, maxNameBytes), where, text.Ellipsis(value, maxNameBytes))
			}
		}
	}
	return name, nil
}

// defaultServiceAccount is what a Pod without serviceAccountName runs as.
const defaultServiceAccount = "default"

// CheckServiceAccount returns an error if the finalizer Job would run as another ServiceAccount than default or the Pod's own.
// Otherwise whoever may create Pods could act as any ServiceAccount that a FluentPVC names.
func CheckServiceAccount(job *batchv1.JobSpec, podServiceAccount string) error {
	own := cmp.Or(podServiceAccount, defaultServiceAccount)
	for _, name := range []string{job.Template.Spec.ServiceAccountName, job.Template.Spec.DeprecatedServiceAccount} {
		if name != "" && name != defaultServiceAccount && name != own {
			return fmt.Errorf("the finalizer Job would run as ServiceAccount %s, and the Pod runs as %s: set the Pod's serviceAccountName to %[1]s, or name a FluentPVC whose finalizer Job runs as default",
				text.Ellipsis(name, maxNameBytes), text.Ellipsis(own, maxNameBytes))
		}
	}
	return nil
}

// MaxContainers of a Pod with a FluentPVC. Each gets the mounts and variables of the template, up to 32 KiB, so without a bound a
// small Pod of 20,000 containers would make a patch of hundreds of MiB.
const MaxContainers = 256

// Added returns at most how many volumes, and how many bytes of volumes and containers as JSON, Inject has added to a Pod that has so many
// containers now.
func Added(t *sondev1.FluentPVCSpec, containers int) (volumes, bytes int, err error) {
	p := partsOf(t, "")
	each, err := json.Marshal([]any{p.mounts, p.envs})
	if err != nil {
		return 0, 0, fmt.Errorf("marshal mounts and variables: %w", err)
	}
	once, err := json.Marshal([]any{p.volumes, t.SidecarContainerTemplate})
	if err != nil {
		return 0, 0, fmt.Errorf("marshal volumes and sidecar: %w", err)
	}
	return len(p.volumes), 2*(containers*len(each)+len(once)) + defaultBytes, nil
}

// defaultBytes is more than what the API server adds to a small sidecar and its volume: its defaults, and the mount of a token. To larger
// parts it adds less than they have themselves.
const defaultBytes = 4 << 10

// checkContainers returns an error for a Pod with too many containers. A Trace's gate and the sidecar of an earlier call do not count.
func checkContainers(spec *corev1.PodSpec, t *sondev1.FluentPVCSpec, c call) error {
	n := len(spec.Containers) + len(spec.InitContainers)
	if name := t.SidecarContainerTemplate.Name; c != first && (has(spec.Containers, name) || has(spec.InitContainers, name)) {
		n--
	}
	if has(spec.InitContainers, gateconfig.ContainerName) {
		n--
	}
	if n > MaxContainers {
		return fmt.Errorf("it has %d containers, and a Pod with a FluentPVC may have %d: distribute them over several Pods", n, MaxContainers)
	}
	return nil
}

// checkPod returns an error for a Pod that cannot have the volume. Windows Pods can, if the FluentPVC's images run there.
func checkPod(pod *corev1.Pod, t *sondev1.FluentPVCSpec) error {
	if pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return errors.New("it is a static Pod, which the kubelet starts from its own files: remove the FluentPVC's name from them")
	}
	return CheckServiceAccount(&t.PVCFinalizerJobSpecTemplate, pod.Spec.ServiceAccountName)
}
