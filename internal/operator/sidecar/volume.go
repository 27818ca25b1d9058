package sidecar

import (
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// AddVolume adds the claim's volume, the common volumes, and their mounts and environment variables to all containers of a Pod
// template. A mount of the same volume at the same path that a container has already is kept, and so is a variable that it sets
// itself. The spec is partly changed after an error.
func AddVolume(spec *corev1.PodSpec, t *sondev1.FluentPVCSpec, claimName string) error {
	p := partsOf(t, claimName)
	if err := p.addVolumes(spec, first); err != nil {
		return err
	}
	return p.addToContainers(spec)
}

// parts are what a FluentPVC adds to a Pod and to each of its containers.
type parts struct {
	volumes []corev1.Volume
	mounts  []corev1.VolumeMount
	envs    []corev1.EnvVar
}

func partsOf(t *sondev1.FluentPVCSpec, claimName string) parts {
	volume := corev1.Volume{Name: t.PVCVolumeName, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName},
	}}
	mount := corev1.VolumeMount{Name: t.PVCVolumeName, MountPath: t.PVCVolumeMountPath}
	return parts{
		volumes: slices.Concat([]corev1.Volume{volume}, t.CommonVolumes),
		mounts:  slices.Concat([]corev1.VolumeMount{mount}, t.CommonVolumeMounts),
		envs:    t.CommonEnvs,
	}
}

func (p parts) addVolumes(spec *corev1.PodSpec, c call) error {
	for i := range p.volumes {
		want := p.volumes[i].DeepCopy()
		at := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == want.Name })
		switch {
		case at < 0:
			spec.Volumes = append(spec.Volumes, *want)
		case c == first:
			return fmt.Errorf("volume name %q is already in use: rename that volume", want.Name)
		case c == reinvoked && want.PersistentVolumeClaim == nil && equality.Semantic.DeepDerivative(*want, spec.Volumes[at]):
			// The API server has filled in defaults.
		default:
			spec.Volumes[at] = *want
		}
	}
	return nil
}

func (p parts) addToContainers(spec *corev1.PodSpec) error {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if err := p.addTo(&list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// addTo leaves the gate alone: it uses no volume, and may have been added before or after.
func (p parts) addTo(c *corev1.Container) error {
	if isGate(*c) {
		return nil
	}
	for i := range p.mounts {
		if err := addMount(c, &p.mounts[i]); err != nil {
			return err
		}
	}
	for i := range p.envs {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == p.envs[i].Name }) {
			c.Env = append(c.Env, *p.envs[i].DeepCopy())
		}
	}
	return nil
}

func addMount(c *corev1.Container, want *corev1.VolumeMount) error {
	at := path.Clean(want.MountPath)
	for _, m := range c.VolumeMounts {
		switch {
		case path.Clean(m.MountPath) != at:
		case m.Name == want.Name:
			return nil
		default:
			return fmt.Errorf("container %q mounts volume %q at %s, where volume %q belongs: change the container's mountPath", c.Name, m.Name, m.MountPath, want.Name)
		}
	}
	for _, d := range c.VolumeDevices {
		if path.Clean(d.DevicePath) == at {
			return fmt.Errorf("container %q has the device of volume %q at %s, where volume %q belongs: change the container's devicePath", c.Name, d.Name, d.DevicePath, want.Name)
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, *want.DeepCopy())
	return nil
}
