package collector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/naming"
	"github.com/sonde-operator/sonde/internal/wire/duration"
	"github.com/sonde-operator/sonde/internal/wire/release"
)

const (
	// ServiceAccount of the releaser in each namespace that is open.
	ServiceAccount = "sonde-releaser"

	app = "collector"
	// annotationRemedy says whether a Job only makes a failed release good.
	annotationRemedy = "monitoring.openshift.tpg/remedy"
	// annotationRetried of a Job is the request for another attempt that it follows. It has read nothing that is newer.
	annotationRetried = "monitoring.openshift.tpg/retried"
	// annotationSecret of a Job is the UID of its Secret.
	annotationSecret = "monitoring.openshift.tpg/secret-uid"
	// annotationRelease names the release that a releaser's Pod works on.
	annotationRelease = "monitoring.openshift.tpg/release"

	defaultTimeout = 5 * time.Minute
	maxTimeout     = time.Hour // by the schema
	defaultRetries = 3
	// defaultInterval between looking for drift.
	defaultInterval = 10 * time.Minute
	// extraTime of a Job beyond the timeout: its image is pulled, the chart is rendered, and a failed release is made good.
	extraTime = 3 * time.Minute

	memoryRequest = 64 << 20
	memoryLimit   = 256 << 20
)

// BuildAnchor returns the ConfigMap that owns all objects of a release. If it is in the Collector's namespace, the Collector owns it,
// so that the API server's garbage collector removes the release also when the operator is gone.
func BuildAnchor(c *sondev1.Collector) *corev1.ConfigMap {
	anchor := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.ReleaseNamespace(), Name: anchorName(c), Labels: labelsOf(c), Annotations: map[string]string{sondev1.AnnotationOwner: naming.Owner(c)}},
		Data:       map[string]string{"README": "Deleting this ConfigMap deletes the Helm release " + c.ReleaseName() + ". As long as its Collector exists, the operator installs it again."},
	}
	if c.Namespace == anchor.Namespace {
		anchor.OwnerReferences = []metav1.OwnerReference{{APIVersion: sondev1.GroupVersion.String(), Kind: sondev1.CollectorKind, Name: c.Name, UID: c.UID}}
	}
	return anchor
}

// anchorPrefix begins the names of anchors.
const anchorPrefix = "sonde-collector-"

func anchorName(c *sondev1.Collector) string { return anchorPrefix + c.ReleaseName() }

// runName names a Job and its Secret.
func runName(c *sondev1.Collector, number int64) string {
	suffix := "-" + naming.Short(c.UID) + "-" + strconv.FormatInt(number, 10)
	return naming.Cut("sonde-"+c.ReleaseName(), naming.MaxLabel-len(suffix)) + suffix
}

// BuildRequest returns what the releaser is to do.
func BuildRequest(c *sondev1.Collector, anchor *corev1.ConfigMap) *release.Request {
	q := &release.Request{
		Version: release.Version, Release: c.ReleaseName(), Namespace: c.ReleaseNamespace(),
		Anchor:        release.Anchor{Name: anchor.Name, UID: string(anchor.UID)},
		Chart:         chartOf(c),
		Configuration: c.Spec.Collector.Configuration,
		Global: map[string]any{
			"cluster": c.Spec.Cluster,
			"tenant":  map[string]any{"id": c.Spec.Tenant.ID, "reference": c.Spec.Tenant.Reference, "instance": c.Spec.Tenant.Instance},
		},
		Drift:   driftOf(c),
		Install: int(timeout(c.Spec.Install) / time.Second), Upgrade: int(timeout(c.Spec.Upgrade) / time.Second),
	}
	if isSpent(c) {
		q.Remedy, q.SkipHooks = remedyOf(c), c.Status.Failures > retriesOf(actionOf(c))+1
	}
	for _, from := range c.Spec.ValuesFrom {
		q.ValuesFrom = append(q.ValuesFrom, release.Document{Kind: from.Kind, Name: from.Name, Key: from.Key})
	}
	if v := c.Spec.Values; v != nil {
		q.Values = v.Raw
	}
	return q
}

// driftOf returns what the releaser does about drift: empty if it does not look. A run of a release that is as the spec says was asked
// for by a user, or its Job is gone: then it looks, and repairs.
func driftOf(c *sondev1.Collector) release.Drift {
	switch {
	case c.Spec.Drift != sondev1.DriftIgnore && c.Spec.Drift != "":
		return release.Drift(c.Spec.Drift)
	case c.Status.ReleasedGeneration == c.Generation:
		return release.DriftRepair
	}
	return ""
}

// looksForDrift reports whether the operator looks at the objects of a release from time to time.
func looksForDrift(c *sondev1.Collector) bool {
	return c.Spec.Drift == sondev1.DriftRepair || c.Spec.Drift == sondev1.DriftWarn
}

func intervalOf(c *sondev1.Collector) time.Duration {
	d, err := duration.Parse(c.Spec.Interval)
	if err != nil || d <= 0 {
		return defaultInterval
	}
	return d
}

func chartOf(c *sondev1.Collector) release.Chart {
	from := c.Spec.Chart
	if from == nil {
		return release.Chart{Version: c.Spec.Collector.Version}
	}
	return release.Chart{
		Source: release.Source(from.Source), URL: from.URL, Name: cmp.Or(from.Name, c.Spec.Collector.Name),
		Version: cmp.Or(from.Version, c.Spec.Collector.Version), Digest: from.Digest, CABundle: []byte(from.CABundle),
		SecretRef: secretRefOf(from),
	}
}

func secretRefOf(c *sondev1.CollectorChart) string {
	if c.SecretRef == nil {
		return ""
	}
	return c.SecretRef.Name
}

// wasReady reports whether the release has a revision that was ready. Helm marks the old revision as superseded before it marks the new one as
// deployed. If the second write is lost, none is deployed.
func wasReady(c *sondev1.Collector) bool {
	return c.Status.Revision > 0 || slices.ContainsFunc(c.Status.History, func(r sondev1.CollectorRevision) bool {
		return r.Status == "superseded" // Helm's name of it
	})
}

// actionOf returns the part of the spec that bounds the next attempts: upgrade if a revision was ready, else install.
func actionOf(c *sondev1.Collector) *sondev1.CollectorAction {
	if wasReady(c) {
		return c.Spec.Upgrade
	}
	return c.Spec.Install
}

// isSpent reports whether the first attempt and all retries have failed. What follows makes the failed release good.
func isSpent(c *sondev1.Collector) bool { return c.Status.Failures > retriesOf(actionOf(c)) }

func remedyOf(c *sondev1.Collector) release.Remedy {
	if a := actionOf(c); !wasReady(c) || a != nil && a.Remediation == sondev1.RemediationUninstall {
		return release.Uninstall
	}
	return release.Rollback
}

func retriesOf(a *sondev1.CollectorAction) int32 {
	if a != nil && a.Retries != nil {
		return *a.Retries
	}
	return defaultRetries
}

func timeout(a *sondev1.CollectorAction) time.Duration {
	if a == nil || a.Timeout == "" {
		return defaultTimeout
	}
	d, err := duration.Parse(a.Timeout)
	if err != nil { // the schema refuses it
		return defaultTimeout
	}
	return d
}

// deadlineOf a Collector's Jobs.
func deadlineOf(c *sondev1.Collector) time.Duration {
	return max(timeout(c.Spec.Install), timeout(c.Spec.Upgrade)) + extraTime
}

// BuildSecret returns the Secret that hands the request to a Job.
func BuildSecret(c *sondev1.Collector, anchor *corev1.ConfigMap, number int64) (*corev1.Secret, error) {
	b, err := json.Marshal(BuildRequest(c, anchor))
	if err != nil {
		return nil, fmt.Errorf("write the request: %w", err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: anchor.Namespace, Name: runName(c, number), Labels: labelsOf(c), OwnerReferences: ownedBy(anchor)},
		Immutable:  new(true),
		Data:       map[string][]byte{release.RequestKey: b},
	}, nil
}

// BuildJob returns the Job that runs the releaser once.
func BuildJob(c *sondev1.Collector, anchor *corev1.ConfigMap, number int64, image string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: anchor.Namespace, Name: runName(c, number), Labels: labelsOf(c), OwnerReferences: ownedBy(anchor),
			Annotations: map[string]string{
				sondev1.AnnotationOwner: naming.Owner(c),
				sondev1.AnnotationRun:   strconv.FormatInt(number, 10), sondev1.AnnotationGeneration: strconv.FormatInt(c.Generation, 10),
				annotationRemedy: strconv.FormatBool(isSpent(c)), annotationRetried: c.Status.Retried,
			},
		},
		Spec: batchv1.JobSpec{
			// A Pod that fails is not replaced: two releasers would not know of each other.
			BackoffLimit: new(int32(0)), Completions: new(int32(1)), Parallelism: new(int32(1)),
			PodReplacementPolicy:  new(batchv1.Failed),
			ActiveDeadlineSeconds: new(int64(deadlineOf(c) / time.Second)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(c), Annotations: map[string]string{
					sondev1.AnnotationOwner: naming.Owner(c), annotationRelease: c.ReleaseName(), "openshift.io/required-scc": "restricted-v2",
				}},
				Spec: releaserPod(c, runName(c, number), image),
			},
		},
	}
}

func releaserPod(c *sondev1.Collector, secret, image string) corev1.PodSpec {
	const volume, scratch = "request", "scratch"
	spec := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: ServiceAccount, EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(10)),
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: release.Container, Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/releaser"},
			Env: []corev1.EnvVar{
				{Name: "HOME", Value: "/scratch"}, // Helm's caches
				{Name: "GOMEMLIMIT", Value: strconv.Itoa(memoryLimit * 3 / 4)},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: *resource.NewQuantity(memoryRequest, resource.BinarySI)},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: *resource.NewQuantity(memoryLimit, resource.BinarySI)},
			},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			VolumeMounts:             []corev1.VolumeMount{{Name: volume, MountPath: "/request", ReadOnly: true}, {Name: scratch, MountPath: "/scratch"}},
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
		Volumes: []corev1.Volume{
			{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(0o444))}}},
			{Name: scratch, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(256<<20, resource.BinarySI)}}},
		},
	}
	if from := c.Spec.Chart; from != nil && from.SecretRef != nil {
		mount(&spec, "credentials", release.CredentialsPath, secretKeys(from.SecretRef.Name,
			corev1.KeyToPath{Key: release.UsernameKey, Path: release.UsernameKey}, corev1.KeyToPath{Key: release.PasswordKey, Path: release.PasswordKey}))
	}
	for i, from := range c.Spec.ValuesFrom {
		item := corev1.KeyToPath{Key: from.Key, Path: release.ValuesFile}
		source := secretKeys(from.Name, item)
		if from.Kind == "ConfigMap" {
			source = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: from.Name}, Items: []corev1.KeyToPath{item}, DefaultMode: new(int32(0o444)), Optional: new(true),
			}}
		}
		mount(&spec, "values-"+strconv.Itoa(i), release.ValuesPath+"/"+strconv.Itoa(i), source)
	}
	return spec
}

// secretKeys is a volume with keys of a Secret. They are optional, so that the releaser reports a missing one; otherwise its Pod would wait
// until the Job's deadline.
func secretKeys(name string, keys ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Items: keys, DefaultMode: new(int32(0o444)), Optional: new(true)}}
}

func mount(spec *corev1.PodSpec, name, path string, from corev1.VolumeSource) {
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: from})
}

func ownedBy(anchor *corev1.ConfigMap) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: anchor.Name, UID: anchor.UID}}
}

// labelsOf returns the labels of a Collector's objects. The operator finds them by kind and UID; the others are for people.
func labelsOf(c *sondev1.Collector) map[string]string {
	all := naming.Own()
	all[sondev1.LabelAppName] = app
	all[sondev1.LabelAppInstance] = naming.Cut(app+"-"+c.ReleaseName(), naming.MaxLabel)
	all[sondev1.LabelAppCreatedBy] = "kube8-operator"
	all[sondev1.LabelKind] = sondev1.CollectorKind
	all[sondev1.LabelUID] = string(c.UID)
	return all
}
