package agentjob

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
)

const (
	// componentSweep is the value of labelComponent on sweep Jobs.
	componentSweep = "sweep"
	labelComponent = "app.kubernetes.io/component"
	// sweepSeconds bound a sweep; a finished Job is kept for sweepKept seconds.
	sweepSeconds, sweepKept = 60, 30
	// sweepTries are the retries after a failed Pod.
	sweepTries  = 2
	sweepMemory = 64 * mi
)

// SweepPlan describes the sweep after one probe.
type SweepPlan struct {
	Name string
	// TargetNamespace, Pod and UID of the probe's target, and the node that it runs on.
	TargetNamespace, Pod, Node string
	UID                        types.UID
	// HostNetwork says that the target's network namespace is the node's.
	HostNetwork bool
}

// Sweep returns a Job that removes what a killed probe left in its node's kernel (`agent sweep`). It has the rights of a probe,
// and Kubernetes deletes it afterwards. It has no labels of a capture, so that it does not count as a probe and stays when the
// capture is deleted.
func Sweep(o Options, capture sondev1.Capture, p SweepPlan) *batchv1.Job {
	args := []string{componentSweep, "--pod-uid", string(p.UID)}
	if p.HostNetwork {
		args = append(args, FlagHostNetwork)
	}
	labels := naming.Own()
	labels[labelComponent] = componentSweep
	annotations := map[string]string{
		sondev1.AnnotationOwner:           naming.Owner(capture),
		sondev1.AnnotationTargetNamespace: p.TargetNamespace,
		sondev1.AnnotationTargetPod:       p.Pod,
		sondev1.AnnotationTargetNode:      p.Node,
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: o.Namespace, Labels: labels, Annotations: annotations},
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(sweepTries)),
			ActiveDeadlineSeconds: new(int64(sweepSeconds)), TTLSecondsAfterFinished: new(int32(sweepKept)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"openshift.io/required-scc": RequiredSCC}},
				Spec: shortPod(p.Node, sweepSeconds, corev1.Container{
					Name: componentSweep, Image: o.Image, ImagePullPolicy: corev1.PullIfNotPresent,
					Command: []string{"/agent"}, Args: args,
					SecurityContext: probeSecurity(o.Privilege, false),
					Resources:       briefResources(sweepMemory),
				}),
			},
		},
	}
}
