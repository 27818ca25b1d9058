package agentjob

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sonde-operator/sonde/internal/wire/ringmemory"
)

const (
	// doctorSeconds bound a Pod of the doctor's that nobody deletes.
	doctorSeconds = 120
	// doctorMemory in bytes: besides the agent, what the tracer's programs have in the kernel. The rings of a capture's come to it.
	doctorMemory = 256 * mi
)

// Doctor is a Pod that finds out what the kernel of a node allows, with the rights of a probe, and ends. Nobody in the
// cluster makes one: a user does, by his own rights.
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
			Resources:       little(doctorMemory + ringmemory.MaxBytes(0)),
		}),
	}
}

// shortPod runs one container on a node for seconds at most, as a probe's account.
func shortPod(node string, seconds int64, c corev1.Container) corev1.PodSpec {
	// Why it could not is the end of its log.
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	spec := NodePod(node, 1, c)
	spec.ActiveDeadlineSeconds = new(seconds)
	return spec
}

// little is what a short look needs, and so much memory at most, in bytes.
func little(memory int64) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: *resource.NewQuantity(32*mi, resource.BinarySI),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)},
	}
}

// onNode is by the node's name, and not by nodeName: the scheduler then counts the requests.
func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{name},
			}}}},
		},
	}}
}
