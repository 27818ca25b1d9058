package agentjob

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

const (
	// doctorSeconds bound a doctor's Pod that is not deleted.
	doctorSeconds = 120
	// doctorMemory in bytes: the agent and the memory of the tracer's programs in the kernel, without the rings of a capture.
	doctorMemory = 256 * mi
)

// Doctor returns a Pod that checks, with the rights of a probe, what the kernel of a node allows. The plugin creates it with its
// user's rights; the operator never does.
func Doctor(o Options, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "sonde-doctor-", Namespace: o.Namespace,
			Labels:      map[string]string{"app.kubernetes.io/name": "sonde", "app.kubernetes.io/component": "doctor", "app.kubernetes.io/part-of": "packet-capture-operator"},
			Annotations: map[string]string{"openshift.io/required-scc": RequiredSCC},
		},
		Spec: shortPod(node, doctorSeconds, corev1.Container{
			Name: "doctor", Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{"/agent"}, Args: []string{"doctor", "--output", "json"},
			SecurityContext: probeSecurity(o.Privilege, true),
			Resources:       briefResources(doctorMemory + ringmemory.MaxBytes(0)),
		}),
	}
}

// shortPod returns a Pod that runs one container on a node, for this number of seconds at most.
func shortPod(node string, seconds int64, c corev1.Container) corev1.PodSpec {
	// After an error the end of the log is the message.
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	spec := NodePod(node, 1, c)
	spec.ActiveDeadlineSeconds = new(seconds)
	return spec
}

// briefResources are the resources of a short check, with a memory limit in bytes.
func briefResources(memory int64) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: *resource.NewQuantity(32*mi, resource.BinarySI),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)},
	}
}

// onNode selects a node by affinity instead of nodeName, so that the scheduler counts the requests.
func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name},
			}}}},
		},
	}}
}
