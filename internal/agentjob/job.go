package agentjob

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// gracePeriod in seconds is enough to flush a file, and short enough that nothing of a deleted
// capture is left after half a minute.
const gracePeriod = 10

// everything of a target is traced: all of its containers, all that runs there.
const everything = "*"

// Plan of one Pod's Job: what differs between the Jobs of a capture.
type Plan struct {
	Name              string
	ConfigMap, Secret string
	// Pod to capture; its name, UID, node and hostNetwork are used.
	Pod *corev1.Pod
	// Duration of this Pod's capture and, after it, of its file's retention; whole seconds.
	Duration, RetainFor time.Duration
	// Gate says that the Pod waits for its probe.
	Gate bool
	// Window is the duration of the whole capture.
	Window time.Duration
}

// Job captures one Pod of a capture's target.
func Job(o Options, capture sondev1.Capture, p Plan) *batchv1.Job {
	object := meta(o, capture, p.Name)
	object.Labels[sondev1.LabelTargetPodUID] = string(p.Pod.UID)
	object.Annotations[sondev1.AnnotationTargetNamespace] = p.Pod.Namespace
	object.Annotations[sondev1.AnnotationTargetPod] = p.Pod.Name
	object.Annotations[sondev1.AnnotationTargetNode] = p.Pod.Spec.NodeName
	if t, ok := capture.(*sondev1.Trace); ok {
		object.Annotations[sondev1.AnnotationTargetContainer] = cmp.Or(strings.Join(t.Spec.Containers, ","), everything)
		object.Annotations[sondev1.AnnotationTargetCommand] = cmp.Or(t.Spec.Command, everything)
	}

	template := metav1.ObjectMeta{Labels: maps.Clone(object.Labels), Annotations: maps.Clone(object.Annotations)}
	template.Annotations["openshift.io/required-scc"] = RequiredSCC
	replace := batchv1.Failed // never a second probe beside one that is still ending
	return &batchv1.Job{
		ObjectMeta: object,
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)),
			PodReplacementPolicy:  &replace,
			ActiveDeadlineSeconds: new(seconds(p.Duration + p.RetainFor + Margin)),
			// A finished Job holds its account: it must be there until the capture's other Jobs have
			// ended too and the status is final, and the manager may be away meanwhile. It deletes Jobs
			// itself: this is for when none comes back.
			TTLSecondsAfterFinished: new(int32(seconds(p.Window + AccountKept))),
			Template:                corev1.PodTemplateSpec{ObjectMeta: template, Spec: podSpec(o, capture, p)},
		},
	}
}

func podSpec(o Options, capture sondev1.Capture, p Plan) corev1.PodSpec {
	spec := nodePod(p.Pod.Spec.NodeName, gracePeriod, probe(o, capture, p), keeper(o, p))
	spec.Volumes = volumes(capture, p)
	return spec
}

// nodePod runs containers on a node, as an agent's account; they have so many seconds to end.
func nodePod(node string, grace int64, containers ...corev1.Container) corev1.PodSpec {
	return corev1.PodSpec{
		HostPID:                       true,
		RestartPolicy:                 corev1.RestartPolicyNever,
		ServiceAccountName:            ServiceAccount,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		DNSPolicy:                     corev1.DNSDefault,
		PriorityClassName:             PriorityClass,
		TerminationGracePeriodSeconds: new(grace),
		Affinity:                      onNode(node),
		Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:                    containers,
	}
}

// seconds rounds up: a capture is never shorter than it was asked for.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func secondsText(d time.Duration) string { return strconv.FormatInt(seconds(d), 10) + "s" }
