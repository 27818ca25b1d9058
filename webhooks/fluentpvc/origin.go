package fluentpvc

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// podTemplate begins the fields of a Job's Pods.
const podTemplate = "spec.template.spec."

// origins knows where the parts of a built Pod come from.
type origins struct {
	spec  *sondev1.FluentPVCSpec
	built *corev1.PodSpec
	// container returns what the user wrote as the container list[i] of built, and where; "" if it is only Sonde's.
	container func(list string, i int) (where string, own corev1.Container)
	// elsewhere returns the origin of all other fields.
	elsewhere func(f string) string
}

// finalizerOrigin returns the origins of a finalizer Job's fields.
func finalizerOrigin(s *sondev1.FluentPVCSpec, built *corev1.PodSpec) func(string) string {
	const at = "spec.pvcFinalizerJobSpecTemplate."
	return origins{
		spec: s, built: built,
		container: func(list string, i int) (string, corev1.Container) {
			of := s.PVCFinalizerJobSpecTemplate.Template.Spec.Containers
			if list == "initContainers" {
				of = s.PVCFinalizerJobSpecTemplate.Template.Spec.InitContainers
			}
			return fmt.Sprintf("%stemplate.spec.%s[%d]", at, list, i), of[i]
		},
		elsewhere: func(f string) string {
			// The API server names the template's metadata in this way, and gives its labels to the Job.
			for _, m := range []string{"labels", "annotations"} {
				if f == "metadata."+m || f == "spec.template."+m {
					return at + "template.metadata." + m
				}
			}
			return at + strings.TrimPrefix(f, "spec.")
		},
	}.of
}

// injectedOrigin returns the origins of the fields of a Job whose Pod has the sidecar.
func injectedOrigin(s *sondev1.FluentPVCSpec, built *corev1.PodSpec) func(string) string {
	return origins{
		spec: s, built: built,
		container: func(list string, i int) (string, corev1.Container) {
			if containersOf(built, list)[i].Name == s.SidecarContainerTemplate.Name {
				return "spec.sidecarContainerTemplate", s.SidecarContainerTemplate
			}
			return "", corev1.Container{}
		},
		elsewhere: func(f string) string { return "a Pod with the sidecar, " + f },
	}.of
}

func containersOf(spec *corev1.PodSpec, list string) []corev1.Container {
	if list == "initContainers" {
		return spec.InitContainers
	}
	return spec.Containers
}

// of returns the origin of a field of the built Job.
func (o origins) of(f string) string {
	rest, inside := strings.CutPrefix(f, podTemplate)
	list, i, rest, ok := element(rest)
	switch {
	case !inside || !ok:
	case list == "volumes" && i < len(o.built.Volumes):
		if where := o.volume(o.built.Volumes[i].Name, rest); where != "" {
			return where
		}
	case (list == "containers" || list == "initContainers") && i < len(containersOf(o.built, list)):
		if where := o.inContainer(list, i, rest); where != "" {
			return where
		}
	}
	return o.elsewhere(f)
}

// volume returns the origin of the field rest of a volume that Sonde has added, or "".
func (o origins) volume(name, rest string) string {
	if name == o.spec.PVCVolumeName {
		return "spec.pvcVolumeName"
	}
	return indexed("spec.commonVolumes", slices.IndexFunc(o.spec.CommonVolumes, func(v corev1.Volume) bool { return v.Name == name }), rest)
}

// inContainer returns the origin of the field rest of a container, or "". Sonde adds mounts and variables behind the user's.
func (o origins) inContainer(list string, i int, rest string) string {
	where, own := o.container(list, i)
	built := containersOf(o.built, list)[i]
	inner, j, tail, ok := element(strings.TrimPrefix(rest, "."))
	switch {
	case ok && inner == "volumeMounts" && j >= len(own.VolumeMounts) && j < len(built.VolumeMounts):
		return o.mount(&built.VolumeMounts[j], tail)
	case ok && inner == "env" && j >= len(own.Env) && j < len(built.Env):
		name := built.Env[j].Name
		return indexed("spec.commonEnvs", slices.IndexFunc(o.spec.CommonEnvs, func(e corev1.EnvVar) bool { return e.Name == name }), tail)
	case strings.HasPrefix(rest, ".volumeMounts.") && len(own.VolumeMounts) == 0: // the API server leaves some indices out
		return "spec.commonVolumeMounts" + strings.TrimPrefix(rest, ".volumeMounts")
	case where == "":
		return ""
	}
	return where + rest
}

// mount returns the origin of the field rest of a mount that Sonde has added.
func (o origins) mount(m *corev1.VolumeMount, rest string) string {
	i := slices.IndexFunc(o.spec.CommonVolumeMounts, func(c corev1.VolumeMount) bool { return c.Name == m.Name && c.MountPath == m.MountPath })
	if i < 0 {
		return "spec.pvcVolumeMountPath"
	}
	return indexed("spec.commonVolumeMounts", i, rest)
}

// indexed returns the field rest of list[i], or "" if i is negative.
func indexed(list string, i int, rest string) string {
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%s[%d]%s", list, i, rest)
}

var elementForm = regexp.MustCompile(`^(\w+)\[(\d+)\]`)

// element splits list[i].rest.
func element(f string) (list string, i int, rest string, ok bool) {
	m := elementForm.FindStringSubmatch(f)
	if m == nil {
		return "", 0, "", false
	}
	i, err := strconv.Atoi(m[2])
	return m[1], i, f[len(m[0]):], err == nil
}
