package fluentpvc

import (
	"encoding/json"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	sondev1 "github.com/sonde-operator/sonde/api/v1alpha1"
)

// sampleSpec returns the spec of the sample with a change.
func sampleSpec(t *testing.T, change func(*sondev1.FluentPVCSpec)) *sondev1.FluentPVCSpec {
	t.Helper()
	b, err := json.Marshal(sample(t))
	if err != nil {
		t.Fatal(err)
	}
	var f sondev1.FluentPVC
	if err := json.Unmarshal(b, &f); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&f.Spec)
	}
	return &f.Spec
}

// problemsOf returns what check and build refuse, as the Handler does.
func problemsOf(s *sondev1.FluentPVCSpec) string {
	var all []string
	for _, e := range check(s) {
		all = append(all, e.Error())
	}
	if len(all) == 0 {
		_, all = build(s, "sonde-system")
	}
	return strings.Join(all, "; ")
}

type specChange struct {
	change func(*sondev1.FluentPVCSpec)
	want   string // the whole refusal; empty if accepted
}

func testChanges(t *testing.T, changes map[string]specChange) {
	t.Helper()
	for name, tc := range changes {
		t.Run(name, func(t *testing.T) {
			if got := problemsOf(sampleSpec(t, tc.change)); got != tc.want {
				t.Errorf("problems\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

func TestCheckVolumeAndClaim(t *testing.T) {
	block, filesystem := corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem
	testChanges(t, map[string]specChange{
		"the sample": {},
		"a volume name in capitals": {
			func(s *sondev1.FluentPVCSpec) {
				s.PVCVolumeName = "Fluent.PVC"
				s.SidecarContainerTemplate.VolumeMounts = nil
			},
			`spec.pvcVolumeName: Invalid value: "Fluent.PVC": write at most 63 of [a-z0-9-], with a letter or digit at both ends, like fluent-pvc`,
		},
		"no volume name": {
			func(s *sondev1.FluentPVCSpec) { s.PVCVolumeName = "" },
			`spec.pvcVolumeName: Invalid value: "": write at most 63 of [a-z0-9-], with a letter or digit at both ends, like fluent-pvc`,
		},
		"a relative path": {
			func(s *sondev1.FluentPVCSpec) { s.PVCVolumeMountPath = "mnt" },
			`spec.pvcVolumeMountPath: Invalid value: "mnt": write an absolute path without a colon, like /mnt/fluent-pvc`,
		},
		"a path with a colon": {
			func(s *sondev1.FluentPVCSpec) { s.PVCVolumeMountPath = "/mnt:a" },
			`spec.pvcVolumeMountPath: Invalid value: "/mnt:a": write an absolute path without a colon, like /mnt/fluent-pvc`,
		},
		"the root directory": {
			func(s *sondev1.FluentPVCSpec) { s.PVCVolumeMountPath = "/x/.." },
			`spec.pvcVolumeMountPath: Invalid value: "/x/..": write an absolute path without a colon, like /mnt/fluent-pvc`,
		},
		"no access mode": {
			func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.AccessModes = nil },
			`spec.pvcSpecTemplate.accessModes: Required value: write at least one, like ReadWriteOnce`,
		},
		"one volume for all": {
			func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.VolumeName = "pv-1" },
			`spec.pvcSpecTemplate.volumeName: Forbidden: each Pod gets a volume of its own: name a storageClassName instead`,
		},
		"a selector": {
			func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.Selector = &metav1.LabelSelector{} },
			`spec.pvcSpecTemplate.selector: Forbidden: each Pod gets a volume of its own, and no class provisions a volume for a selector: name a storageClassName instead`,
		},
		"a block device": {
			func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.VolumeMode = &block },
			`spec.pvcSpecTemplate.volumeMode: Invalid value: "Block": the volume is mounted: write Filesystem, or leave it out`,
		},
		"a file system": {change: func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.VolumeMode = &filesystem }},
		"a snapshot as source": {change: func(s *sondev1.FluentPVCSpec) {
			s.PVCSpecTemplate.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "seed"}
		}},
		"no storage class": {change: func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.StorageClassName = nil }},
	})
}

func TestCheckSource(t *testing.T) {
	from := func(namespace *string) *corev1.TypedObjectReference {
		return &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "seed", Namespace: namespace}
	}
	ephemeral := func(namespace *string) []corev1.Volume {
		return []corev1.Volume{{Name: "some-secret", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: corev1.PersistentVolumeClaimSpec{DataSourceRef: from(namespace)}},
		}}}}
	}
	claim := func(namespace *string) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { s.PVCSpecTemplate.DataSourceRef = from(namespace) }
	}
	common := func(namespace *string) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { s.CommonVolumes = ephemeral(namespace) }
	}
	finalizer := func(namespace *string) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) {
			s.PVCFinalizerJobSpecTemplate.Template.Spec.Volumes = ephemeral(namespace)
			s.PVCFinalizerJobSpecTemplate.Template.Spec.Volumes[0].Name = "seed"
		}
	}
	const refused = "dataSourceRef.namespace: Forbidden: the source must be in the Pod's namespace: leave it out"
	testChanges(t, map[string]specChange{
		"of the Pod's namespace":        {change: claim(nil)},
		"with an empty namespace":       {change: claim(new(""))},
		"of another namespace":          {claim(new("bank")), "spec.pvcSpecTemplate." + refused},
		"of a common volume":            {change: common(nil)},
		"of a common volume, elsewhere": {common(new("bank")), "spec.commonVolumes[0].ephemeral.volumeClaimTemplate.spec." + refused},
		"of a volume of the finalizer":  {change: finalizer(nil)},
		"of a volume of the finalizer, elsewhere": {
			finalizer(new("bank")), "spec.pvcFinalizerJobSpecTemplate.template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec." + refused,
		},
	})
}

func TestCheckCommon(t *testing.T) {
	volume := func(name string) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { s.CommonVolumes = append(s.CommonVolumes, corev1.Volume{Name: name}) }
	}
	mount := func(name, path string) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) {
			s.CommonVolumeMounts = append(s.CommonVolumeMounts, corev1.VolumeMount{Name: name, MountPath: path})
		}
	}
	testChanges(t, map[string]specChange{
		"a volume name in capitals": {
			volume("SOME_SECRET"),
			`spec.commonVolumes[1].name: Invalid value: "SOME_SECRET": write at most 63 of [a-z0-9-], with a letter or digit at both ends, like some-secret`,
		},
		"the volume's name": {
			volume("fluent-pvc"),
			`spec.commonVolumes[1].name: Invalid value: "fluent-pvc": another volume, or pvcVolumeName, has this name: rename one of them`,
		},
		"a name twice": {
			volume("some-secret"),
			`spec.commonVolumes[1].name: Invalid value: "some-secret": another volume, or pvcVolumeName, has this name: rename one of them`,
		},
		"a hostPath": {
			func(s *sondev1.FluentPVCSpec) {
				s.CommonVolumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
			},
			`spec.commonVolumes: Forbidden: hostPath volumes (volume "some-secret"): the pod security standard baseline does not allow it`,
		},
		"the volume once more": {change: mount("fluent-pvc", "/data")},
		"a mount without volume": {
			mount("other", "/data"),
			`spec.commonVolumeMounts[1].name: Invalid value: "other": no volume has this name: write pvcVolumeName or the name of one of commonVolumes`,
		},
		"the volume's path": {
			mount("some-secret", "/mnt//fluent-pvc/"),
			`spec.commonVolumeMounts[1].mountPath: Invalid value: "/mnt//fluent-pvc/": another mount, or pvcVolumeMountPath, has this path: change one of them`,
		},
		"a path twice": {
			mount("some-secret", "/path/to/secret"),
			`spec.commonVolumeMounts[1].mountPath: Invalid value: "/path/to/secret": another mount, or pvcVolumeMountPath, has this path: change one of them`,
		},
		"a variable's name": {
			func(s *sondev1.FluentPVCSpec) { s.CommonEnvs[0].Name = "A=B" },
			`spec.commonEnvs[0].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII characters other than '='`,
		},
		"no variable's name": {
			func(s *sondev1.FluentPVCSpec) { s.CommonEnvs[0].Name = "" },
			`spec.commonEnvs[0].name: Invalid value: "": environment variable name must be non-empty`,
		},
		"nothing in common": {change: func(s *sondev1.FluentPVCSpec) { s.CommonEnvs, s.CommonVolumes, s.CommonVolumeMounts = nil, nil, nil }},
	})
}

func TestCheckSidecar(t *testing.T) {
	sidecar := func(change func(*corev1.Container)) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { change(&s.SidecarContainerTemplate) }
	}
	context := func(c corev1.SecurityContext) func(*sondev1.FluentPVCSpec) {
		return sidecar(func(o *corev1.Container) { o.SecurityContext = &c })
	}
	forbidden := func(what string) string {
		return "spec.sidecarContainerTemplate: Forbidden: " + what + ": the pod security standard baseline does not allow it"
	}
	const restart = "spec.sidecarContainerTemplate.restartPolicy: Forbidden: leave it out: sidecarMode says how the sidecar restarts"
	unmasked := corev1.UnmaskedProcMount
	testChanges(t, map[string]specChange{
		"a name in capitals": {
			sidecar(func(c *corev1.Container) { c.Name = "Side Car" }),
			`spec.sidecarContainerTemplate.name: Invalid value: "Side Car": write at most 63 of [a-z0-9-], with a letter or digit at both ends, like side-car`,
		},
		"the gate's name": {
			sidecar(func(c *corev1.Container) { c.Name = "sonde-gate" }),
			`spec.sidecarContainerTemplate.name: Invalid value: "sonde-gate": the gate of a Trace has this name: write another`,
		},
		"a command in one": {
			sidecar(func(c *corev1.Container) { c.Command = []string{"sh -c\techo", "x"} }),
			`spec.sidecarContainerTemplate.command: Invalid value: "sh -c\techo": no program; write [sh, -c, echo, x]`,
		},
		"a blank in an argument": {change: sidecar(func(c *corev1.Container) { c.Command = []string{"sh", "-c", "echo a b"} })},
		"no command":             {change: sidecar(func(c *corev1.Container) { c.Command = nil })},
		"a variable's name": {
			sidecar(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "="}} }),
			`spec.sidecarContainerTemplate.env[0].name: Invalid value: "=": a valid environment variable name must consist only of printable ASCII characters other than '='`,
		},
		"restarting without Native": {sidecar(func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }), restart},
		"restarting otherwise": {
			func(s *sondev1.FluentPVCSpec) {
				s.SidecarMode, s.SidecarContainerTemplate.RestartPolicy = sondev1.SidecarNative, new(corev1.ContainerRestartPolicyOnFailure)
			}, restart,
		},
		"Native, said twice": {change: func(s *sondev1.FluentPVCSpec) {
			s.SidecarMode, s.SidecarContainerTemplate.RestartPolicy = sondev1.SidecarNative, new(corev1.ContainerRestartPolicyAlways)
		}},
		"a volume of some Pods": {
			sidecar(func(c *corev1.Container) { c.VolumeMounts = []corev1.VolumeMount{{Name: "logs", MountPath: "/logs"}} }),
			`spec.sidecarContainerTemplate.volumeMounts[0].name: Invalid value: "logs": no volume has this name: write pvcVolumeName or the name of one of commonVolumes`,
		},
		"the volume elsewhere, too": {change: sidecar(func(c *corev1.Container) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "fluent-pvc", MountPath: "/logs"}}
		})},
		"another volume at its path": {
			sidecar(func(c *corev1.Container) {
				c.VolumeMounts = []corev1.VolumeMount{{Name: "some-secret", MountPath: "/mnt/fluent-pvc"}}
			}),
			`spec.sidecarContainerTemplate: container "sidecar" mounts volume "some-secret" at /mnt/fluent-pvc, where volume "fluent-pvc" belongs: change the container's mountPath`,
		},
		"the name of the dry run's container": {change: sidecar(func(c *corev1.Container) { c.Name = "main" })},

		"privileged": {context(corev1.SecurityContext{Privileged: new(true)}), forbidden(`privileged (container "sidecar" must not set securityContext.privileged=true)`)},
		"a capability": {
			context(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN", "CHOWN"}}}),
			forbidden(`non-default capabilities (container "sidecar" must not include "SYS_ADMIN" in securityContext.capabilities.add)`),
		},
		"a default capability": {change: context(corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"CHOWN"}}})},
		"an unmasked proc":     {context(corev1.SecurityContext{ProcMount: &unmasked}), forbidden(`procMount (container "sidecar" must not set securityContext.procMount to "Unmasked")`)},
		"no seccomp": {
			context(corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}}),
			forbidden(`seccompProfile (container "sidecar" must not set securityContext.seccompProfile.type to "Unconfined")`),
		},
		"a port of the host": {
			sidecar(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}} }),
			forbidden(`hostPort (container "sidecar" uses hostPort 80)`),
		},
		"a port": {change: sidecar(func(c *corev1.Container) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80}} })},
	})
}

func TestCheckJob(t *testing.T) {
	job := func(change func(*batchv1.JobSpec)) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { change(&s.PVCFinalizerJobSpecTemplate) }
	}
	pod := func(change func(*corev1.PodSpec)) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { change(&s.PVCFinalizerJobSpecTemplate.Template.Spec) }
	}
	meta := func(m metav1.ObjectMeta) func(*sondev1.FluentPVCSpec) {
		return func(s *sondev1.FluentPVCSpec) { s.PVCFinalizerJobSpecTemplate.Template.ObjectMeta = m }
	}
	const at = "spec.pvcFinalizerJobSpecTemplate."
	forbidden := func(what string) string {
		return at + "template: Forbidden: " + what + ": the pod security standard baseline does not allow it"
	}
	ours := func(where, key string) string {
		return at + "template.metadata." + where + "[" + key + "]: Forbidden: Sonde gives this key its meaning: remove it"
	}
	testChanges(t, map[string]specChange{
		"a selector":        {job(func(j *batchv1.JobSpec) { j.Selector = &metav1.LabelSelector{} }), at + "selector: Forbidden: leave selector and manualSelector out: the Job controller chooses them"},
		"manual selector":   {job(func(j *batchv1.JobSpec) { j.ManualSelector = new(true) }), at + "selector: Forbidden: leave selector and manualSelector out: the Job controller chooses them"},
		"suspended":         {job(func(j *batchv1.JobSpec) { j.Suspend = new(true) }), at + `suspend: Invalid value: "true": the Job would never run: leave it out`},
		"not suspended":     {change: job(func(j *batchv1.JobSpec) { j.Suspend = new(false) })},
		"no Pod at once":    {job(func(j *batchv1.JobSpec) { j.Parallelism = new(int32(0)) }), at + `parallelism: Invalid value: "0": the Job would never run: write 1, or leave it out`},
		"no Pod at all":     {job(func(j *batchv1.JobSpec) { j.Completions = new(int32(0)) }), at + `completions: Invalid value: "0": the Job would succeed without a Pod, and the data would be deleted: write 1, or leave it out`},
		"deleted later":     {job(func(j *batchv1.JobSpec) { j.TTLSecondsAfterFinished = new(int32(60)) }), at + "ttlSecondsAfterFinished: Forbidden: the operator deletes the Job when it has recorded its result: leave it out"},
		"indexed":           {job(func(j *batchv1.JobSpec) { j.CompletionMode = new(batchv1.IndexedCompletion) }), at + `completionMode: Invalid value: "Indexed": a volume is processed as a whole: write NonIndexed, or leave it out`},
		"not indexed":       {change: job(func(j *batchv1.JobSpec) { j.CompletionMode = new(batchv1.NonIndexedCompletion) })},
		"run by others":     {job(func(j *batchv1.JobSpec) { j.ManagedBy = new("example.org/runner") }), at + `managedBy: Invalid value: "example.org/runner": only Kubernetes runs the Job: leave it out`},
		"run by Kubernetes": {change: job(func(j *batchv1.JobSpec) { j.ManagedBy = new(batchv1.JobControllerName) })},
		"bounds": {change: job(func(j *batchv1.JobSpec) {
			j.BackoffLimit, j.ActiveDeadlineSeconds, j.Parallelism, j.Completions = new(int32(2)), new(int64(60)), new(int32(2)), new(int32(2))
		})},

		"the opt-in as an annotation": {meta(metav1.ObjectMeta{Annotations: map[string]string{sondev1.KeyFluentPVC: "x"}}), ours("annotations", sondev1.KeyFluentPVC)},
		"the source's opt-in":         {meta(metav1.ObjectMeta{Labels: map[string]string{sondev1.KeyFluentPVCSource: "x"}}), ours("labels", sondev1.KeyFluentPVCSource)},
		"labels of Sonde": {
			meta(metav1.ObjectMeta{Labels: map[string]string{sondev1.LabelUID: "x", sondev1.LabelKind: "x", "app": "x"}}),
			ours("labels", sondev1.LabelKind) + "; " + ours("labels", sondev1.LabelUID),
		},
		"labels and annotations": {change: meta(metav1.ObjectMeta{Labels: map[string]string{"app": "x"}, Annotations: map[string]string{"a": "b"}})},
		"a finalizer":            {meta(metav1.ObjectMeta{Finalizers: []string{"example.org/x"}}), at + "template.metadata.finalizers: Forbidden: the Job's Pods could not be deleted: remove them"},
		"AppArmor off": {
			meta(metav1.ObjectMeta{Annotations: map[string]string{"container.apparmor.security.beta.kubernetes.io/sidecar": "unconfined"}}),
			forbidden(`forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/sidecar="unconfined"")`),
		},

		"a node":                 {pod(func(p *corev1.PodSpec) { p.NodeName = "n1" }), at + "template.spec.nodeName: Forbidden: the scheduler chooses a node that reaches the volume: leave it out"},
		"always restarting":      {pod(func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyAlways }), at + `template.spec.restartPolicy: Invalid value: "Always": write Never or OnFailure`},
		"no restart policy":      {pod(func(p *corev1.PodSpec) { p.RestartPolicy = "" }), at + `template.spec.restartPolicy: Invalid value: "": write Never or OnFailure`},
		"restarting when failed": {change: pod(func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyOnFailure })},
		"a ServiceAccount":       {change: pod(func(p *corev1.PodSpec) { p.ServiceAccountName = "uploader" })},
		"a ServiceAccount by its old name": {
			pod(func(p *corev1.PodSpec) { p.DeprecatedServiceAccount = "uploader" }), at + `template.spec.serviceAccount: Invalid value: "uploader": write serviceAccountName instead`,
		},
		"both names":           {change: pod(func(p *corev1.PodSpec) { p.ServiceAccountName, p.DeprecatedServiceAccount = "uploader", "uploader" })},
		"the host's network":   {pod(func(p *corev1.PodSpec) { p.HostNetwork = true }), forbidden("host namespaces (hostNetwork=true)")},
		"the host's processes": {pod(func(p *corev1.PodSpec) { p.HostPID = true }), forbidden("host namespaces (hostPID=true)")},
		"the host's IPC":       {pod(func(p *corev1.PodSpec) { p.HostIPC = true }), forbidden("host namespaces (hostIPC=true)")},
		"a user namespace":     {change: pod(func(p *corev1.PodSpec) { p.HostUsers = new(false) })},
		"a hostPath": {
			pod(func(p *corev1.PodSpec) {
				p.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
			}), forbidden(`hostPath volumes (volume "root")`),
		},
		"a sysctl": {
			pod(func(p *corev1.PodSpec) {
				p.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}}
			}), forbidden("forbidden sysctls (kernel.msgmax)"),
		},
		"a privileged init container": {
			pod(func(p *corev1.PodSpec) {
				p.InitContainers = []corev1.Container{{Name: "init", SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}}
			}), forbidden(`privileged (container "init" must not set securityContext.privileged=true)`),
		},
		"commands in one": {
			pod(func(p *corev1.PodSpec) {
				p.InitContainers = []corev1.Container{{Name: "init", Command: []string{"a b"}}}
				p.Containers[0].Command = []string{"c d"}
			}),
			at + `template.spec.initContainers[0].command: Invalid value: "a b": no program; write [a, b]; ` +
				at + `template.spec.containers[0].command: Invalid value: "c d": no program; write [c, d]`,
		},
		"the volume's name": {
			pod(func(p *corev1.PodSpec) { p.Volumes = []corev1.Volume{{Name: "fluent-pvc"}} }),
			`spec.pvcFinalizerJobSpecTemplate: volume name "fluent-pvc" is already in use: rename that volume`,
		},
		"another volume at its path": {
			pod(func(p *corev1.PodSpec) {
				p.Volumes = []corev1.Volume{{Name: "scratch"}}
				p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/mnt/fluent-pvc"}}
			}),
			`spec.pvcFinalizerJobSpecTemplate: container "sidecar" mounts volume "scratch" at /mnt/fluent-pvc, where volume "fluent-pvc" belongs: change the container's mountPath`,
		},
	})
}

// TestOrigins: a problem that the API server finds in a built object is reported where the user wrote its cause.
func TestOrigins(t *testing.T) {
	s := sampleSpec(t, func(s *sondev1.FluentPVCSpec) {
		s.CommonEnvs = append(s.CommonEnvs, corev1.EnvVar{Name: "OWN"}, corev1.EnvVar{Name: "LAST"})
		s.CommonVolumeMounts = append(s.CommonVolumeMounts, corev1.VolumeMount{Name: "fluent-pvc", MountPath: "/own"})
		own := corev1.Container{
			Name: "own", Env: []corev1.EnvVar{{Name: "OWN"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}, {Name: "fluent-pvc", MountPath: "/own"}},
		}
		s.SidecarContainerTemplate.Env = own.Env
		job := &s.PVCFinalizerJobSpecTemplate.Template.Spec
		job.Volumes = []corev1.Volume{{Name: "scratch"}}
		job.InitContainers = []corev1.Container{own}
	})
	native := s.DeepCopy()
	native.SidecarMode = sondev1.SidecarNative
	drafts := func(s *sondev1.FluentPVCSpec) (claim, pod, job draft) {
		d, problems := build(s, "sonde-system")
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		return d[0], d[1], d[2]
	}
	claim, pod, job := drafts(s)
	_, nativePod, _ := drafts(native)
	const in = "spec.template.spec."
	const of = "spec.pvcFinalizerJobSpecTemplate."
	for name, tc := range map[string]struct {
		from    draft
		f, want string
	}{
		"the claim":                       {claim, "spec.resources[storage]", "spec.pvcSpecTemplate.resources[storage]"},
		"the claim as a whole":            {claim, "spec", "spec.pvcSpecTemplate"},
		"the Job":                         {job, "spec.backoffLimit", of + "backoffLimit"},
		"its Pods":                        {job, in + "restartPolicy", of + "template.spec.restartPolicy"},
		"its container":                   {job, in + "containers[0].image", of + "template.spec.containers[0].image"},
		"its init container":              {job, in + "initContainers[0].env[0].name", of + "template.spec.initContainers[0].env[0].name"},
		"its volume":                      {job, in + "volumes[0].name", of + "template.spec.volumes[0].name"},
		"its mount":                       {job, in + "initContainers[0].volumeMounts[0].mountPath", of + "template.spec.initContainers[0].volumeMounts[0].mountPath"},
		"its mount that is common":        {job, in + "initContainers[0].volumeMounts[1].mountPath", of + "template.spec.initContainers[0].volumeMounts[1].mountPath"},
		"the volume in it":                {job, in + "volumes[1].name", "spec.pvcVolumeName"},
		"a common volume in it":           {job, in + "volumes[2].secret.secretName", "spec.commonVolumes[0].secret.secretName"},
		"the volume's mount":              {job, in + "containers[0].volumeMounts[0].mountPath", "spec.pvcVolumeMountPath"},
		"a common mount":                  {job, in + "containers[0].volumeMounts[1].subPath", "spec.commonVolumeMounts[0].subPath"},
		"a common variable":               {job, in + "containers[0].env[0].value", "spec.commonEnvs[0].value"},
		"a common variable behind an own": {job, in + "initContainers[0].env[2].name", "spec.commonEnvs[2].name"},
		"no such container":               {job, in + "containers[7].image", of + "template.spec.containers[7].image"},

		"the sidecar":                   {pod, in + "containers[1].image", "spec.sidecarContainerTemplate.image"},
		"the sidecar as a whole":        {pod, in + "containers[1]", "spec.sidecarContainerTemplate"},
		"its variable":                  {pod, in + "containers[1].env[0].name", "spec.sidecarContainerTemplate.env[0].name"},
		"a common one of its variables": {pod, in + "containers[1].env[1].name", "spec.commonEnvs[0].name"},
		"a mount of the sidecar":        {pod, in + "containers[1].volumeMounts[1].mountPath", "spec.commonVolumeMounts[0].mountPath"},
		"a mount of the Pod":            {pod, in + "containers[0].volumeMounts[1].mountPath", "spec.commonVolumeMounts[0].mountPath"},
		"a variable of the Pod":         {pod, in + "containers[0].env[0].name", "spec.commonEnvs[0].name"},
		"the Pod's volume":              {pod, in + "volumes[1].secret.secretName", "spec.commonVolumes[0].secret.secretName"},
		"the Pod":                       {pod, in + "containers[0].image", "a Pod with the sidecar, " + in + "containers[0].image"},
		"the native sidecar":            {nativePod, in + "initContainers[0].lifecycle", "spec.sidecarContainerTemplate.lifecycle"},
		"a number that is none":         {job, in + "containers[99999999999999999999].image", of + "template.spec.containers[99999999999999999999].image"},
		"a mount without its index":     {pod, in + "containers[0].volumeMounts.subPath", "spec.commonVolumeMounts.subPath"},
		"the Job's labels":              {job, "metadata.labels", of + "template.metadata.labels"},
		"its Pods' annotations":         {job, "spec.template.annotations", of + "template.metadata.annotations"},
		"a field of a later API server": {job, "metadata.x", of + "metadata.x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.from.origin(tc.f); got != tc.want {
				t.Errorf("%s comes from %s, want %s", tc.f, got, tc.want)
			}
		})
	}
}
