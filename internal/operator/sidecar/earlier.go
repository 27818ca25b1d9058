package sidecar

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// removeEarlier removes what an earlier call gave to the Pod that this one is a copy of: everything of its template, if that is
// known, and otherwise the volume of the claim that the annotation names. The copy must not use the original's claim. The current
// template's names are left for Inject to replace.
func removeEarlier(spec *corev1.PodSpec, t, earlier *sondev1.FluentPVCSpec, annotation string) {
	var p parts
	if earlier != nil {
		p = partsOf(earlier, "")
		spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool { return slices.ContainsFunc(p.volumes, sameName(v)) })
		sidecar := named(earlier.SidecarContainerTemplate.Name)
		spec.Containers, spec.InitContainers = slices.DeleteFunc(spec.Containers, sidecar), slices.DeleteFunc(spec.InitContainers, sidecar)
	}
	stale := map[string]bool{} // a Pod may have tens of thousands of volumes and mounts
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		of := v.Name != t.PVCVolumeName && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claimOf(annotation)
		if of {
			stale[v.Name] = true
		}
		return of
	})
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			p.removeFrom(&list[i])
			list[i].VolumeMounts = slices.DeleteFunc(list[i].VolumeMounts, func(m corev1.VolumeMount) bool { return stale[m.Name] })
		}
	}
}

// claimOf returns the claim that an annotation names. The signature does not matter: the worst that a user gets by a forged one is
// a Pod without a volume that they wrote into it.
func claimOf(annotation string) string {
	_, rest, _ := strings.Cut(annotation, "/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func sameName(v corev1.Volume) func(corev1.Volume) bool {
	return func(o corev1.Volume) bool { return o.Name == v.Name }
}

// removeFrom removes the mounts and variables that addTo has added to a container. Others of the same name are the user's.
func (p parts) removeFrom(c *corev1.Container) {
	for i := range p.mounts {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.MountPath == p.mounts[i].MountPath && equality.Semantic.DeepEqual(m, p.mounts[i]) // the first comparison is fast
		})
	}
	for i := range p.envs {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return sameEnv(p.envs[i], e) })
	}
}
