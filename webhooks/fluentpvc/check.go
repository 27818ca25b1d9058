package fluentpvc

import (
	"path"
	"slices"
	"strings"
	"unicode"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
	"github.com/sonde-operator/sonde/internal/operator/sidecar"
	"github.com/sonde-operator/sonde/internal/wire/gateconfig"
	"github.com/sonde-operator/sonde/internal/wire/text"
)

// check returns what no FluentPVC may have, whatever its Pods are.
func check(s *sondev1.FluentPVCSpec) field.ErrorList {
	root := field.NewPath("spec")
	return slices.Concat(
		checkVolume(root, s),
		checkClaim(root.Child("pvcSpecTemplate"), &s.PVCSpecTemplate),
		checkCommon(root, s),
		checkSidecar(root.Child("sidecarContainerTemplate"), s),
		checkJob(root.Child("pvcFinalizerJobSpecTemplate"), &s.PVCFinalizerJobSpecTemplate),
	)
}

// checkVolume has the rules of the schema, which the API server applies after the webhook.
func checkVolume(root *field.Path, s *sondev1.FluentPVCSpec) field.ErrorList {
	list := checkLabel(root.Child("pvcVolumeName"), s.PVCVolumeName)
	at := s.PVCVolumeMountPath
	if !strings.HasPrefix(at, "/") || path.Clean(at) == "/" || strings.Contains(at, ":") {
		list = append(list, invalid(root.Child("pvcVolumeMountPath"), at, "write an absolute path without a colon, like /mnt/fluent-pvc"))
	}
	return list
}

func checkClaim(p *field.Path, c *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	var list field.ErrorList
	if len(c.AccessModes) == 0 {
		list = append(list, field.Required(p.Child("accessModes"), "write at least one, like ReadWriteOnce"))
	}
	if c.VolumeName != "" {
		list = append(list, field.Forbidden(p.Child("volumeName"), "each Pod gets a volume of its own: name a storageClassName instead"))
	}
	if c.Selector != nil {
		list = append(list, field.Forbidden(p.Child("selector"), "each Pod gets a volume of its own, and no class provisions a volume for a selector: name a storageClassName instead"))
	}
	if c.VolumeMode != nil && *c.VolumeMode == corev1.PersistentVolumeBlock {
		list = append(list, invalid(p.Child("volumeMode"), string(*c.VolumeMode), "the volume is mounted: write Filesystem, or leave it out"))
	}
	return append(list, checkSource(p, c)...)
}

// checkSource keeps a claim from reading data of another namespace. The admin of that namespace has not agreed to FluentPVCs.
func checkSource(p *field.Path, c *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	if c.DataSourceRef == nil || c.DataSourceRef.Namespace == nil || *c.DataSourceRef.Namespace == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(p.Child("dataSourceRef", "namespace"), "the source must be in the Pod's namespace: leave it out")}
}

// checkEphemeral checks the claims of ephemeral volumes, as checkSource does.
func checkEphemeral(p *field.Path, volumes []corev1.Volume) field.ErrorList {
	var list field.ErrorList
	for i := range volumes {
		if e := volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			list = append(list, checkSource(p.Index(i).Child("ephemeral", "volumeClaimTemplate", "spec"), &e.VolumeClaimTemplate.Spec)...)
		}
	}
	return list
}

// checkCommon checks what all containers get.
func checkCommon(root *field.Path, s *sondev1.FluentPVCSpec) field.ErrorList {
	var list field.ErrorList
	volumes := []string{s.PVCVolumeName}
	for i, v := range s.CommonVolumes {
		p := root.Child("commonVolumes").Index(i).Child("name")
		list = append(list, checkLabel(p, v.Name)...)
		if slices.Contains(volumes, v.Name) {
			list = append(list, invalid(p, v.Name, "another volume, or pvcVolumeName, has this name: rename one of them"))
		}
		volumes = append(volumes, v.Name)
	}
	paths := []string{path.Clean(s.PVCVolumeMountPath)}
	for i, m := range s.CommonVolumeMounts {
		p := root.Child("commonVolumeMounts").Index(i)
		list = append(list, checkMountName(p.Child("name"), m.Name, volumes)...)
		if slices.Contains(paths, path.Clean(m.MountPath)) {
			list = append(list, invalid(p.Child("mountPath"), m.MountPath, "another mount, or pvcVolumeMountPath, has this path: change one of them"))
		}
		paths = append(paths, path.Clean(m.MountPath))
	}
	list = append(list, checkEphemeral(root.Child("commonVolumes"), s.CommonVolumes)...)
	list = append(list, checkEnvs(root.Child("commonEnvs"), s.CommonEnvs)...)
	return append(list, checkBaseline(root.Child("commonVolumes"), &metav1.ObjectMeta{}, &corev1.PodSpec{Volumes: s.CommonVolumes})...)
}

func checkMountName(p *field.Path, name string, volumes []string) field.ErrorList {
	if slices.Contains(volumes, name) {
		return nil
	}
	return field.ErrorList{invalid(p, name, "no volume has this name: write pvcVolumeName or the name of one of commonVolumes")}
}

func checkEnvs(p *field.Path, envs []corev1.EnvVar) field.ErrorList {
	var list field.ErrorList
	for i, e := range envs {
		for _, problem := range validation.IsRelaxedEnvVarName(e.Name) {
			list = append(list, invalid(p.Index(i).Child("name"), e.Name, problem))
		}
	}
	return list
}

// checkSidecar requires that the sidecar mounts the FluentPVC's own volumes alone, because no other exists in every Pod.
func checkSidecar(p *field.Path, s *sondev1.FluentPVCSpec) field.ErrorList {
	c := &s.SidecarContainerTemplate
	list := checkContainer(p, c)
	if c.RestartPolicy != nil && (s.SidecarMode != sondev1.SidecarNative || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
		list = append(list, field.Forbidden(p.Child("restartPolicy"), "leave it out: sidecarMode says how the sidecar restarts"))
	}
	volumes := []string{s.PVCVolumeName}
	for i := range s.CommonVolumes {
		volumes = append(volumes, s.CommonVolumes[i].Name)
	}
	for i, m := range c.VolumeMounts {
		list = append(list, checkMountName(p.Child("volumeMounts").Index(i).Child("name"), m.Name, volumes)...)
	}
	return append(list, checkBaseline(p, &metav1.ObjectMeta{}, &corev1.PodSpec{Containers: []corev1.Container{*c}})...)
}

// checkJob refuses Jobs that would never run, that would succeed without processing anything, or that others could control.
func checkJob(p *field.Path, j *batchv1.JobSpec) field.ErrorList {
	var list field.ErrorList
	if j.ManualSelector != nil && *j.ManualSelector || j.Selector != nil {
		list = append(list, field.Forbidden(p.Child("selector"), "leave selector and manualSelector out: the Job controller chooses them"))
	}
	if j.Suspend != nil && *j.Suspend {
		list = append(list, invalid(p.Child("suspend"), "true", "the Job would never run: leave it out"))
	}
	if j.Parallelism != nil && *j.Parallelism == 0 {
		list = append(list, invalid(p.Child("parallelism"), "0", "the Job would never run: write 1, or leave it out"))
	}
	if j.Completions != nil && *j.Completions == 0 {
		list = append(list, invalid(p.Child("completions"), "0", "the Job would succeed without a Pod, and the data would be deleted: write 1, or leave it out"))
	}
	if j.TTLSecondsAfterFinished != nil {
		list = append(list, field.Forbidden(p.Child("ttlSecondsAfterFinished"), "the operator deletes the Job when it has recorded its result: leave it out"))
	}
	if j.CompletionMode != nil && *j.CompletionMode != batchv1.NonIndexedCompletion { // the names of its Pods add an index to the Job's, and would be too long
		list = append(list, invalid(p.Child("completionMode"), string(*j.CompletionMode), "a volume is processed as a whole: write NonIndexed, or leave it out"))
	}
	if j.ManagedBy != nil && *j.ManagedBy != batchv1.JobControllerName {
		list = append(list, invalid(p.Child("managedBy"), *j.ManagedBy, "only Kubernetes runs the Job: leave it out"))
	}
	return append(list, checkJobTemplate(p.Child("template"), &j.Template)...)
}

func checkJobTemplate(p *field.Path, t *corev1.PodTemplateSpec) field.ErrorList {
	list := checkTemplateMeta(p.Child("metadata"), &t.ObjectMeta)
	spec := p.Child("spec")
	if t.Spec.NodeName != "" {
		list = append(list, field.Forbidden(spec.Child("nodeName"), "the scheduler chooses a node that reaches the volume: leave it out"))
	}
	if d := t.Spec.DeprecatedServiceAccount; d != "" && d != t.Spec.ServiceAccountName {
		list = append(list, invalid(spec.Child("serviceAccount"), d, "write serviceAccountName instead"))
	}
	if r := t.Spec.RestartPolicy; r != corev1.RestartPolicyNever && r != corev1.RestartPolicyOnFailure {
		list = append(list, invalid(spec.Child("restartPolicy"), string(r), "write Never or OnFailure"))
	}
	for _, l := range []struct {
		name       string
		containers []corev1.Container
	}{{"initContainers", t.Spec.InitContainers}, {"containers", t.Spec.Containers}} {
		for i := range l.containers {
			list = append(list, checkContainer(spec.Child(l.name).Index(i), &l.containers[i])...)
		}
	}
	list = append(list, checkEphemeral(spec.Child("volumes"), t.Spec.Volumes)...)
	return append(list, checkBaseline(p, &t.ObjectMeta, &t.Spec)...)
}

// checkTemplateMeta keeps the Job's Pods from having a FluentPVC themselves, and so on without end, from passing for Pods of
// Sonde, and from being kept by a finalizer that nothing removes.
func checkTemplateMeta(p *field.Path, m *metav1.ObjectMeta) field.ErrorList {
	var list field.ErrorList
	for _, of := range []struct {
		name   string
		values map[string]string
	}{{"labels", m.Labels}, {"annotations", m.Annotations}} {
		for key := range of.values {
			if strings.HasPrefix(key, sondev1.GroupVersion.Group+"/") || slices.Contains(sidecar.Keys, key) {
				list = append(list, field.Forbidden(p.Child(of.name).Key(text.Ellipsis(key, maxValueBytes)), "Sonde gives this key its meaning: remove it"))
			}
		}
	}
	if len(m.Finalizers) > 0 {
		list = append(list, field.Forbidden(p.Child("finalizers"), "the Job's Pods could not be deleted: remove them"))
	}
	slices.SortFunc(list, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return list
}

// checkContainer checks what the API server would accept and the kubelet could not run, and names.
func checkContainer(p *field.Path, c *corev1.Container) field.ErrorList {
	list := checkLabel(p.Child("name"), c.Name)
	if c.Name == gateconfig.ContainerName {
		list = append(list, invalid(p.Child("name"), c.Name, "the gate of a Trace has this name: write another"))
	}
	if len(c.Command) > 0 && strings.ContainsFunc(c.Command[0], unicode.IsSpace) {
		words := append(strings.Fields(c.Command[0]), c.Command[1:]...)
		list = append(list, invalid(p.Child("command"), c.Command[0], "no program; write ["+text.Ellipsis(strings.Join(words, ", "), maxValueBytes)+"]"))
	}
	return append(list, checkEnvs(p.Child("env"), c.Env)...)
}

// checkLabel requires a DNS label, and suggests one.
func checkLabel(p *field.Path, name string) field.ErrorList {
	if len(validation.IsDNS1123Label(name)) == 0 {
		return nil
	}
	const form = "write at most 63 of [a-z0-9-], with a letter or digit at both ends"
	suggestion := strings.Trim(strings.NewReplacer("_", "-", ".", "-", " ", "-").Replace(strings.ToLower(name)), "-")
	if len(validation.IsDNS1123Label(suggestion)) == 0 {
		return field.ErrorList{invalid(p, name, form+", like "+suggestion)}
	}
	return field.ErrorList{invalid(p, name, form+", like fluent-pvc")}
}

// invalid bounds the value in the message.
func invalid(p *field.Path, value, detail string) *field.Error {
	return field.Invalid(p, text.Ellipsis(value, maxValueBytes), detail)
}
