package sidecar

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// restored returns the sidecar as other webhooks left it, with the template's program: what it runs, with which variables and
// mounts, and how it is probed. The rest stays as others set it: a mirror's image, the user of an SCC, the resources of a
// LimitRange, further variables, and mounts like that of a token. The signature says nothing about these; whoever creates the Pod
// could leave the sidecar out as well.
func restored(is corev1.Container, template *corev1.Container) *corev1.Container {
	is.Command, is.Args, is.WorkingDir = template.Command, template.Args, template.WorkingDir
	is.EnvFrom, is.VolumeDevices, is.RestartPolicy = template.EnvFrom, template.VolumeDevices, template.RestartPolicy
	is.Stdin, is.StdinOnce, is.TTY = template.Stdin, template.StdinOnce, template.TTY
	restore(&is.Lifecycle, template.Lifecycle)
	restore(&is.LivenessProbe, withDefaults(template.LivenessProbe, is.LivenessProbe))
	restore(&is.ReadinessProbe, withDefaults(template.ReadinessProbe, is.ReadinessProbe))
	restore(&is.StartupProbe, withDefaults(template.StartupProbe, is.StartupProbe))
	is.Ports = ports(template.Ports, is.Ports)
	for _, want := range template.Env {
		at := slices.IndexFunc(is.Env, func(e corev1.EnvVar) bool { return e.Name == want.Name })
		switch {
		case at < 0:
			is.Env = append(is.Env, want)
		case !sameEnv(want, is.Env[at]):
			is.Env[at] = want
		}
	}
	for _, want := range template.VolumeMounts {
		at := slices.IndexFunc(is.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == want.MountPath })
		if at < 0 {
			is.VolumeMounts = append(is.VolumeMounts, want)
		} else {
			is.VolumeMounts[at] = want
		}
	}
	return &is
}

// restore sets a field to the template's, unless it differs only by what the API server fills in.
func restore[T any](is **T, template *T) {
	if (*is == nil) != (template == nil) || !equality.Semantic.DeepDerivative(template, *is) {
		*is = template
	}
}

// withDefaults returns the template's probe with the numbers that the API server filled in.
func withDefaults(template, is *corev1.Probe) *corev1.Probe {
	if template == nil || is == nil {
		return template
	}
	p := *template
	p.TimeoutSeconds = cmp.Or(p.TimeoutSeconds, is.TimeoutSeconds)
	p.PeriodSeconds = cmp.Or(p.PeriodSeconds, is.PeriodSeconds)
	p.SuccessThreshold = cmp.Or(p.SuccessThreshold, is.SuccessThreshold)
	p.FailureThreshold = cmp.Or(p.FailureThreshold, is.FailureThreshold)
	return &p
}

// ports returns the template's ports with the protocols and, in the host's network, the host ports that the API server filled in.
func ports(template, is []corev1.ContainerPort) []corev1.ContainerPort {
	if len(is) != len(template) {
		return template
	}
	filled := slices.Clone(template)
	for i := range filled {
		filled[i].Protocol = cmp.Or(filled[i].Protocol, is[i].Protocol)
		if is[i].HostPort == is[i].ContainerPort {
			filled[i].HostPort = cmp.Or(filled[i].HostPort, is[i].HostPort)
		}
	}
	return filled
}

// sameEnv reports whether a variable is the template's, with the defaults of the API server.
func sameEnv(template, is corev1.EnvVar) bool {
	return template.Name == is.Name && template.Value == is.Value && (template.ValueFrom == nil) == (is.ValueFrom == nil) &&
		equality.Semantic.DeepDerivative(template.ValueFrom, is.ValueFrom)
}
