package agentjob

import (
	"maps"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/kind"
)

// gracePeriod in seconds is long enough to flush a file. All Pods of a deleted capture must be gone after half a minute.
const gracePeriod = 10

// Plan holds what differs between the Jobs of a capture.
type Plan struct {
	Name              string
	ConfigMap, Secret string
	// Pod to capture; its name, UID, node and hostNetwork are used.
	Pod *corev1.Pod
	// Duration of this Pod's capture, and of the retention of its file afterwards; whole seconds.
	Duration, RetainFor time.Duration
	// KeeperUser is the user and the group of the keeper, made by the function KeeperUser. No other live Job may have it.
	KeeperUser int64
	// Gate reports that the Pod waits at its gate for the probe.
	Gate bool
	// Window is the duration of the whole capture.
	Window time.Duration
	// ContainersNotFound are the containers of the spec that the Pod does not have.
	ContainersNotFound []string
}

// Job returns the Job for one Pod of a capture's target: a probe and its keeper.
func Job(o Options, capture sondev1.Capture, p Plan) *batchv1.Job {
	k, _ := kind.CaptureOf(capture.KindName())
	spec := NodePod(p.Pod.Spec.NodeName, gracePeriod, probe(o, capture, p), keeper(o, p))
	spec.Volumes = volumes(capture, p)
	annotations := k.Annotations(capture.Common())
	if len(p.ContainersNotFound) > 0 {
		annotations[sondev1.AnnotationContainersNotFound] = strings.Join(p.ContainersNotFound, ",")
	}
	return ForPod(o, capture, Agent{
		Name: p.Name, Target: p.Pod, Annotations: annotations, Spec: spec, KeeperUser: p.KeeperUser,
		Deadline: p.Duration + p.RetainFor + Margin,
		// The manager reads the account when the capture's other Jobs have ended too, and then deletes the Jobs itself. This
		// limit matters only if the manager does not come back.
		Kept: p.Window + AccountKept,
	})
}

// Agent is one agent Job of an owner.
type Agent struct {
	Name string
	// Target is the Pod that the Job is for; its name, namespace, UID and node are used.
	Target *corev1.Pod
	// Annotations for people, besides those that name the target.
	Annotations map[string]string
	// Spec of the agent's Pod, made by NodePod.
	Spec corev1.PodSpec
	// KeeperUser is the user of the keeper; 0 if the Job has no keeper.
	KeeperUser int64
	// Deadline by which Kubernetes ends the Job, and how long a finished Job is Kept; whole seconds.
	Deadline, Kept time.Duration
}

// ForPod returns an agent Job of any owner. Its labels make the sweeper delete it once the owner is gone.
func ForPod(o Options, owner sondev1.AgentJobOwner, a Agent) *batchv1.Job {
	object := meta(o, owner, a.Name)
	object.Labels[sondev1.LabelTargetPodUID] = string(a.Target.UID)
	if a.KeeperUser != 0 {
		object.Labels[sondev1.LabelKeeperUser] = strconv.FormatInt(a.KeeperUser, 10)
	}
	object.Annotations[sondev1.AnnotationTargetNamespace] = a.Target.Namespace
	object.Annotations[sondev1.AnnotationTargetPod] = a.Target.Name
	object.Annotations[sondev1.AnnotationTargetNode] = a.Target.Spec.NodeName
	maps.Copy(object.Annotations, a.Annotations)

	return once(object, a.Spec, a.Deadline, a.Kept)
}

// once returns a Job that runs one Pod, once. Kubernetes ends it by its deadline, and keeps it for a while after its end.
func once(object metav1.ObjectMeta, spec corev1.PodSpec, deadline, kept time.Duration) *batchv1.Job {
	template := metav1.ObjectMeta{Labels: maps.Clone(object.Labels), Annotations: maps.Clone(object.Annotations)}
	template.Annotations["openshift.io/required-scc"] = RequiredSCC
	replace := batchv1.Failed // never a second agent beside one that is still ending
	return &batchv1.Job{
		ObjectMeta: object,
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)),
			PodReplacementPolicy:    &replace,
			ActiveDeadlineSeconds:   new(seconds(deadline)),
			TTLSecondsAfterFinished: new(int32(seconds(kept))),
			Template:                corev1.PodTemplateSpec{ObjectMeta: template, Spec: spec},
		},
	}
}

// NodePod returns a Pod that runs containers on a node under the agents' ServiceAccount. They have grace seconds to end.
func NodePod(node string, grace int64, containers ...corev1.Container) corev1.PodSpec {
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

// seconds rounds up, so that no capture is shorter than requested.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func secondsText(d time.Duration) string { return strconv.FormatInt(seconds(d), 10) + "s" }
